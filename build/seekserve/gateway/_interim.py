import enum


class PieceKind(enum.Enum):
    CONTENT = "content"
    REASONING = "reasoning"


class ReasoningSplit:
    def __init__(self, starts_in_thinking):
        pass

    def feed(self, text):
        return [(PieceKind.CONTENT, text)] if text else []

    def finish(self):
        return []


class Content:
    pass


class CallStart:
    pass


class CallArguments:
    pass


class Event:
    pass


class ToolCallParser:
    pass
