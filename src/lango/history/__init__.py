"""What a model is sent of a conversation: token counts, the window that fits a budget, and repair. Pure functions."""

from lango.history.tokens import Calibration, TokenCounter, count_tokens, warm_up

__all__ = ["Calibration", "TokenCounter", "count_tokens", "warm_up"]
