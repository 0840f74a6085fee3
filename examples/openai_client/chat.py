"""A chat with a served agent through OpenAI's SDK: the server keeps the history.

    lango serve                              # in the folder of any agent, such as examples/adk_agent
    python chat.py                           # here; an empty line ends
    python chat.py --session <id>            # continues a session, also from another machine

`--url` is the server's address; LANGO_KEY is an API key, if the server requires one (`lango keys add`).
"""

import argparse
import os

import openai


def main() -> None:
    """Chat until an empty line."""
    options = argparse.ArgumentParser(description="Chat with an agent that Lango serves.")
    options.add_argument("--url", default="http://127.0.0.1:8787/v1")
    options.add_argument("--session", default="")
    chosen = options.parse_args()

    client = openai.OpenAI(base_url=chosen.url, api_key=os.environ.get("LANGO_KEY", "none"))
    agent = client.models.list().data[0].id
    session: str = chosen.session
    while line := input("> ").strip():
        # the new message is enough: the server knows the rest
        with client.chat.completions.with_streaming_response.create(
            model=agent,
            messages=[{"role": "user", "content": line}],
            stream=True,
            extra_headers={"X-Session-Id": session} if session else {},
        ) as response:
            session = response.headers["x-session-id"]
            for chunk in response.parse():
                print(chunk.choices[0].delta.content or "", end="", flush=True)
        print()
    print(f"to continue: python chat.py --session {session}")


if __name__ == "__main__":
    main()
