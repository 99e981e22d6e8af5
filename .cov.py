import sys,importlib.util
sys.path.insert(0,".")
sp=importlib.util.spec_from_file_location("tf","tests/test_fuzz.py"); T=importlib.util.module_from_spec(sp); sys.modules["tf"]=T; sp.loader.exec_module(T)
n={"used":0,"exp":0,"card":0}
e=T._exported; u=T.used; d=T._drawn
def E(b): n["exp"]+=1; return e(b)
def U(t): n["used"]+=1; return u(t)
def D(c): n["card"]+=1; return d(c)
T._exported=E; T.used=U; T._drawn=D
for f in (T.test_any_markdown_in_any_section,T.test_any_sound_words,T.test_any_tex,T.test_any_cut_of_a_whole_card,T.test_any_front_matter):
    for k in n: n[k]=0
    f(); print(f.__name__,n)
