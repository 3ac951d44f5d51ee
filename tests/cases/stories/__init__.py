"""The stories, by family. Each function tells one case into a journal; `CASES` holds them by their path."""

from collections.abc import Callable

from tests.cases.story import Journal

Story = Callable[[Journal], None]
CASES: dict[str, Story] = {}


def case(path: str) -> Callable[[Story], Story]:
    """Registers a story under `<cause>/<slug>`. A slug that begins with `near-miss` looks like that cause and is not."""

    def register(story: Story) -> Story:
        assert path not in CASES, path
        CASES[path] = story
        return story

    return register
