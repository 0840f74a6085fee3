"""Texts, numbers and JSON values of every kind."""

from hypothesis import strategies as st

text = st.text(max_size=20) | st.sampled_from(["", " ", "\0", "\ud800", "a\0b", "é漢😀", "$lango:bytes", "call"])
floats = st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
# an event may hold bytes too, and the store keeps them
kept_values = json_values | st.binary(max_size=8) | st.dictionaries(text, st.binary(max_size=8), max_size=2)
