from pathlib import Path

from generator import library, prose
from generator.tex_commands import refused, table

f,_=library.load(Path("cards"))
for c in f.cards.values():
    for t in prose.formulas(c):
        for r in refused(t.content): print(t.content, r)
for e in [*table().examples.values(),*table().environments.values()]:
    for r in refused(e): print("EX",e,r)
for t in [r"\boxed{x}",r"\text{a $x$}",r"\mathrm{\beta}",r"a&b",r"a\\b",r"\begin{align}a\end{align}",r"\begin{array}{l|r}a\end{array}",r"\begin{array}a\end{array}",r"a，b","50%",r"x\tag{1}",r"\R",r"\textbf{x}",r"^{\big)}",r"\text",r"\mathcal S_i \mathbf 1 \mathbb R",r"\begin{cases}a\\[2pt]b\end{cases}"]: print(t,[ (r.offset,r.what,r.hint) for r in refused(t)])
