import json
import subprocess
import sys
import tomllib

sys.path.insert(0,"tests")
from mathml_tree import tree

from generator.mathml import mathml

D=tomllib.loads(open("generator/tex_commands.toml").read())
F=[f"a{s} b" for s in D["symbols"]]+list(D["commands"].values())+list(D["environments"].values())
I=[{"tex":f,"display":d} for f in F for d in (False,True)]
r=json.loads(subprocess.run(["node","tests/mathjax.cjs"],input=json.dumps(I),capture_output=True,text=True,check=True).stdout)
n=0
for f,m in zip(I,r):
    try: a=mathml(f["tex"],f["display"]); ta=tree(a)
    except Exception as e: a=ta=f"E {e!r}"
    b=m.get("mathml") or m["error"]; tb=tree(b) if "mathml" in m else b
    if ta!=tb:
        n+=1; print("=====",f["tex"],f["display"]); print("  core",ta); print("  mjax",tb)
        if "-v" in sys.argv: print(a); print(b)
print(n,len(I))
