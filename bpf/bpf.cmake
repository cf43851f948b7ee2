# One object a source: see each .bpf.c for what it attaches to, what it costs and what it misses.
bpf_object(shared bpf/shared.bpf.c)
