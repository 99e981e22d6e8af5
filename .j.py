import json
import subprocess

from generator.mathml import mathml

F=[r"\frac{a}{b}+\sqrt[3]{x}",r"x_i^{2}\varepsilon",r"\underbrace{a+b}_{\text{two}}",r"\begin{aligned}a&=b\\&=c\end{aligned}",r"\begin{pmatrix}1&0\\0&1\end{pmatrix}",r"\operatorname*{argmin}_k \mathbb{E}[\mathbf{x}]\mathcal{O}(n)",r"\log_2 n \max_i x",r"\left(\frac12\right)\Big|x\Big|",r"\hat{x} \bar y f'(x) \not= \notin \mathrm{GiB} 1{,}000\ 3.5",r"\bm x",r"\boxed{x}",r"a，b"]
r=json.loads(subprocess.run(["node","tests/mathjax.cjs"],input=json.dumps([{"tex":f,"display":True} for f in F]),capture_output=True,text=True,check=True).stdout)
for f,m in zip(F,r):
    print("=====",f)
    try: print(mathml(f,True))
    except Exception as e: print("E",e)
    print("--"); print(m.get("mathml",m))
