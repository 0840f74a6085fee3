"""An agent made of ADK's own classes alone."""

from . import agent as agent
