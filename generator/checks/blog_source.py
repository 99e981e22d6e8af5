"""No blog is the only source of a number."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from generator.cards.model import Citation
from generator.checks import Reading
from generator.problems import Problem, Severity

CODE = "blog-source"
SEVERITY: Severity = "error"
SENTENCE = (
    "A number that is cited from a blog, a forum or an encyclopaedia is cited in the same paragraph "
    "from a paper, documentation or source code as well."
)

# Where anyone publishes without review, or where answers are retold. A company's engineering blog
# counts when it says so in its address; official documentation and papers never do.
HOSTS = frozenset(
    {
        "medium.com",
        "towardsdatascience.com",
        "substack.com",
        "blogspot.com",
        "wordpress.com",
        "github.io",
        "dev.to",
        "hashnode.dev",
        "reddit.com",
        "quora.com",
        "stackoverflow.com",
        "stackexchange.com",
        "wikipedia.org",
        "x.com",
        "twitter.com",
        "youtube.com",
        "zhihu.com",
        "csdn.net",
        "jianshu.com",
        "juejin.cn",
        "cnblogs.com",
        "segmentfault.com",
        "bilibili.com",
        "weixin.qq.com",
        "toutiao.com",
        "baidu.com",
    }
)


def check_card(reading: Reading) -> Iterator[Problem]:
    """Each number whose only source in its paragraph is one of these."""
    for passage in reading.passages:
        cited = {id(p.link): p.link for p in passage.pieces if isinstance(p.link, Citation)}
        sources = passage.card.sources
        known = [link for link in cited.values() if link.source in sources]
        if not all(is_blog(sources[link.source].url) for link in known):
            continue
        for link in known:
            if any(character.isdigit() for character in link.text):
                message = (
                    f"“{link.text}” rests on `{link.source}` alone, which is no primary source"
                )
                hint = "Cite the paper, documentation or code that it is taken from, or measure it."
                yield Problem(link.place, CODE, message, hint, SEVERITY)


def is_blog(url: str) -> bool:
    """Whether a work at ``url`` was published without review."""
    parts = urlsplit(url)
    labels = (parts.hostname or "").split(".")
    parents = {".".join(labels[start:]) for start in range(len(labels))}
    named = "blog" in labels or "blogs" in labels or parts.path.startswith(("/blog", "/posts"))
    return named or not parents.isdisjoint(HOSTS)
