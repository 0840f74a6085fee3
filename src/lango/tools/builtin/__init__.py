"""The tools that come with Lango: files, shell, web, time."""
