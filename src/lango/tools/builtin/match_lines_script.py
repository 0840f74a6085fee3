"""Match lines against a regular expression (runs as a child process of `limited_process`).

Standard library only: it is started by path, without packages. The first line of stdin is the job, each further line a
file as `[path, text]`; stdout is a JSON object.
"""

import json
import re
import sys
from typing import Any


def main() -> None:
    """Read the job and the files; write the matches."""
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    try:
        expression = re.compile(str(job["expression"]), re.IGNORECASE if job["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        sys.stdout.write(json.dumps({"wrong": str(error)}))
        return
    max_matches, max_characters = job["limits"]["matches"], job["limits"]["line"]
    matches: list[dict[str, Any]] = []
    for line in sys.stdin:
        file: list[str] = json.loads(line)
        path, text = file
        for number, content in enumerate(text.split("\n"), 1):
            if found := expression.search(content):
                start = max(0, found.start() - max_characters // 2)
                matches.append({"path": path, "line": number, "text": content[start : start + max_characters]})
            if len(matches) > max_matches:
                sys.stdout.write(json.dumps({"matches": matches[:max_matches], "more": True}))
                return
    sys.stdout.write(json.dumps({"matches": matches}))


if __name__ == "__main__":
    main()
