"""Files of texts, as users have them: found encodings, honest errors, bounded memory."""

from munjang.data.files import Row, Survey, TextSource, read_texts

__all__ = ["Row", "Survey", "TextSource", "read_texts"]
