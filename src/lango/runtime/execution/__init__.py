"""The execution of turns: admission, runs, take-over of turns whose process died."""
