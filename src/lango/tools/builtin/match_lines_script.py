"""Match lines against a regular expression, as a process of its own that can be killed (`limited_process`).

Standard library only: it is started by path, without packages. The first line of stdin is the job, each further line
one file as `[path, text]`; stdout is one JSON object.
"""

import json
import re
import sys
from typing import Any


def main() -> None:
    """Read the job and the files; write what was found."""
    job: dict[str, Any] = json.loads(sys.stdin.readline())
    try:
        expression = re.compile(str(job["expression"]), re.IGNORECASE if job["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        sys.stdout.write(json.dumps({"wrong": str(error)}))
        return
    most, longest = job["limits"]["matches"], job["limits"]["line"]
    matches: list[dict[str, Any]] = []
    for line in sys.stdin:
        file: list[str] = json.loads(line)
        path, text = file
        for number, content in enumerate(text.split("\n"), 1):
            if found := expression.search(content):
                start = max(0, found.start() - longest // 2)
                matches.append({"path": path, "line": number, "text": content[start : start + longest]})
            if len(matches) > most:
                sys.stdout.write(json.dumps({"matches": matches[:most], "more": True}))
                return
    sys.stdout.write(json.dumps({"matches": matches}))


if __name__ == "__main__":
    main()
