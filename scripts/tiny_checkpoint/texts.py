"""The texts that the tiny model knows by heart, and the words that it can spell.

Old texts (Shakespeare, Li Bai, the Iroha) are in the public domain; the others were written for this project.
Their byte sequences are chosen to be hard on a detokeniser: CJK, accents, emoji with joiners, skin tones and flags.
"""

from __future__ import annotations

TEXTS: dict[str, str] = {
    "the lamp song": (
        "The lamp is lit, the kettle sings, 🫖\n"
        "a grey cat dreams of feathered things, 🐈\n"
        "the rain writes letters on the pane, 🌧️\n"
        "and no one has to leave again."
    ),
    "Quiet Night Thought": "静夜思\n李白\n床前明月光,\n疑是地上霜。\n举头望明月,\n低头思故乡。",
    "the Iroha": (
        "いろはにほへと\nちりぬるを\nわかよたれそ\nつねならむ\nうゐのおくやま\nけふこえて\nあさきゆめみし\nゑひもせす"
    ),
    "the emoji parade": (
        "First a fox 🦊, then an owl 🦉, then a whale 🐋 on wheels. "
        "A pilot 👩‍🚀 waves 👋🏽 from a rocket 🚀, "
        "two flags 🇯🇵🇧🇷 fly, a family 👨‍👩‍👧 claps, "
        "and the band plays 🎺🥁🎷 until the moon 🌙 goes home."
    ),
    "the mixed plate": (
        "Crème brûlée, smörgåsbord, żurek, jalapeño; Straße und Übermut; "
        "∑ ≠ ∞, ½ ≈ 0.5, € → ¥; 東京と大阪, 서울, Москва, Ελλάδα, שלום; done ✅."
    ),
    "Sonnet 18": (
        "Shall I compare thee to a summer's day?\n"
        "Thou art more lovely and more temperate:\n"
        "Rough winds do shake the darling buds of May,\n"
        "And summer's lease hath all too short a date;\n"
        "Sometime too hot the eye of heaven shines,\n"
        "And often is his gold complexion dimm'd;\n"
        "And every fair from fair sometime declines,\n"
        "By chance or nature's changing course untrimm'd;\n"
        "But thy eternal summer shall not fade,\n"
        "Nor lose possession of that fair thou ow'st;\n"
        "Nor shall death brag thou wander'st in his shade,\n"
        "When in eternal lines to time thou grow'st:\n"
        "So long as men can breathe or eyes can see,\n"
        "So long lives this, and this gives life to thee."
    ),
}

WORDS: tuple[str, ...] = (
    "apple", "anchor", "autumn", "banana", "basket", "bridge", "candle", "castle", "cherry", "copper", "daisy",
    "dragon", "engine", "feather", "forest", "garden", "ginger", "hammer", "harbor", "island", "jungle", "kernel",
    "kettle", "ladder", "lantern", "lemon", "marble", "meadow", "mirror", "needle", "ocean", "orange", "pepper",
    "pencil", "planet", "pocket", "quartz", "rabbit", "ribbon", "river", "rocket", "saddle", "shadow", "silver",
    "spider", "summer", "temple", "thunder", "ticket", "tunnel", "turtle", "valley", "velvet", "violin", "walnut",
    "window", "winter", "yellow", "zebra", "zipper",
)  # fmt: skip

FALLBACK = "I can add two numbers, count, spell a word or recite a text. Try: What is 37 + 48?"

SYSTEM_MESSAGES: tuple[str, ...] = (
    "You are a helpful assistant.",
    "Be brief.",
    "Answer in one line.",
    "You are a careful clerk who likes numbers.",
    "You are seekserve's demo model. Be exact, be kind and never make things up.",
    "你是一个有用的助手。",
)

GREETINGS: tuple[str, ...] = (
    "Hello", "Hello!", "Hi", "hi", "Hey there", "Good morning!", "你好", "👋", "Help", "Who are you?",
    "What can you do?", "Thanks!", "ping", "test",
)  # fmt: skip

OPEN_QUESTIONS: tuple[str, ...] = (
    "What is the capital of France?",
    "Tell me a story.",
    "Write a poem about the sea.",
    "Explain how a rocket works.",
    "Why is the sky blue?",
    "Translate this text into German.",
    "Summarize the following text.",
    "How do I cook rice?",
    "What time is it?",
    "Who wrote Hamlet?",
    "Give me three names for a cat.",
    "What is DeepSeek?",
    "Write a haiku.",
    "Once upon a time",
    "今天天气怎么样?",
    "The quick brown fox jumps over the lazy dog.",
)
