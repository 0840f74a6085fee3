"""Read what an editor sends with a prompt: texts, files of its project, pictures and sounds. Imports `acp`."""

from collections.abc import Sequence

from acp import schema

from lango.messages import Attachment
from lango.server.compat.inline_files import read_base64_file
from lango.submissions import SubmittedMessage

ContentBlock = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)


def read_prompt(blocks: Sequence[ContentBlock]) -> SubmittedMessage:
    """Return the message of a prompt. Raise `ApiError` for a file that is not in base64."""
    texts, files = list[str](), list[Attachment]()
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                texts.append(block.text)
            case schema.ResourceContentBlock():  # a file that the agent may read itself, if it has a tool for it
                texts.append(f"[{block.name}]({block.uri})")
            case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as resource):
                texts.append(f'\n<file uri="{resource.uri}">\n{resource.text}\n</file>\n')
            case schema.EmbeddedResourceContentBlock(resource=schema.BlobResourceContents() as resource):
                name = resource.uri.rstrip("/").rpartition("/")[2]
                files.append(read_base64_file(len(files) + 1, name, resource.mime_type, resource.blob))
            case schema.ImageContentBlock() | schema.AudioContentBlock():
                files.append(read_base64_file(len(files) + 1, None, block.mime_type, block.data))
            case _:
                pass
    return SubmittedMessage("".join(texts), files)
