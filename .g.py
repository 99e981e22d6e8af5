import json
import random
import subprocess
import sys

sys.path.insert(0,"tests")
from mathml_tree import tree

from generator.mathml import TexError, mathml
from generator.tex_commands import refused, table

T=table()
rnd=random.Random(int(sys.argv[1]) if len(sys.argv)>1 else 0)
sym=[c for c in T.examples if T.examples[c]==f"a{c} b"]
ex=[e for c,e in T.examples.items() if c not in sym]+list(T.environments.values())
one=["mathrm","mathbf","mathit","mathsf","mathtt","mathcal","mathscr","mathbb","mathfrak","boldsymbol","operatorname","hat","bar","tilde","vec","dot","ddot","sqrt","text","phantom","underbrace","overbrace","pmod"]
two=["frac","tfrac","dfrac","binom","overset","underset","stackrel"]
ops=["sum","prod","int","max","log","lim","bigcup","exp","arg\\max"]
delim=["(",")","[","]","|","\\{","\\}","\\|","\\lfloor","\\rfloor","\\langle","\\rangle","\\lvert","\\rVert","\\lceil","\\vert","/","."]
atoms=list("abxyzABLN019+-*/=<>()[]|.,:;!?'")+["10","3.5","1{,}000","''","{}"," "]
def g(d):
    k=rnd.random()
    if d<=0 or k<.35: return rnd.choice(atoms)
    if k<.5: return rnd.choice(sym)+" "
    if k<.56: return rnd.choice(ex)
    if k<.6: return "\\"+rnd.choice(one[:11]+["text"]*3)+"{"+"".join(rnd.choice("abxyzABLN019 ./-,:()+=汉") for _ in range(rnd.randint(1,4)))+"}"
    if k<.66: return f"\\{rnd.choice(one)}{{{g(d-1)}}}"
    if k<.7: return f"\\{rnd.choice(two)}{{{g(d-1)}}}{{{g(d-1)}}}"
    if k<.78: return f"{g(0)}^{{{g(d-1)}}}"
    if k<.84: return f"{g(0)}_{{{g(d-1)}}}^{{{g(d-1)}}}"
    if k<.9: return f"\\{rnd.choice(ops)}_{{{g(d-1)}}}^{{{g(d-1)}}} {g(d-1)}"
    if k<.95: return f"\\left{rnd.choice(delim)} {g(d-1)}\\right{rnd.choice(delim)} "
    if k<.97: return f"\\{rnd.choice(['big','Big','bigg','Bigg','bigl','Bigr'])}{rnd.choice(delim[:-1])} "
    return g(d-1)+g(d-1)+g(d-1)
I=[]
for i in range(int(sys.argv[2]) if len(sys.argv)>2 else 3000):
    t="".join(g(3) for _ in range(rnd.randint(1,2)))
    if list(refused(t)): continue
    d=rnd.random()<.5
    try: mathml(t,d)
    except TexError: continue
    I.append({"tex":t,"display":d})
r=json.loads(subprocess.run(["node","tests/mathjax.cjs"],input=json.dumps(I),capture_output=True,text=True,check=True).stdout)
n=0; out=[]
for f,m in zip(I,r):
    a=mathml(f["tex"],f["display"]); ta=tree(a)
    b=m.get("mathml") or m["error"]; tb=tree(b) if "mathml" in m else b
    if ta!=tb: out.append((len(f["tex"]),f["tex"],f["display"],ta,tb))
for l,t,d,a,b in sorted(out,key=lambda x:x[0])[:int(sys.argv[3]) if len(sys.argv)>3 else 40]:
    print("==",repr(t),d); print("   ",a); print("   ",b)
print(len(out),len(I))
