package survey

import (
	"bytes"
	"context"
)

// once recognises package once: calls in line to run, or records of keys.
func (sv *survey) once(ctx context.Context, l *listing, p *Place) error {
	var names []name
	for _, n := range l.names(onceKinds...) {
		if n.library == Ours {
			names = append(names, n)
		}
	}
	if len(names) == 0 && !l.has("done") {
		return nil
	}

	keys, _, err := sv.children(ctx, join(l.path, "done"))
	if err != nil {
		return err
	}
	var all []name
	for _, key := range keys {
		all = append(all, name{node: key})
	}
	records, err := sv.nodes(ctx, join(l.path, "done"), all)
	if err != nil {
		return err
	}
	ours := len(names) > 0
	for _, r := range records {
		ours = ours || bytes.Contains(r.data, []byte(`"token":`))
		if r.stat.NumChildren == 0 {
			p.Done++
		}
	}
	if !ours {
		p.Done = 0
		return nil
	}

	p.Recipe = Once
	running := make(map[string]bool)
	for _, n := range names {
		running[n.node] = true
	}
	l.claim(func(child string) bool { return running[child] || child == "done" })
	return sv.contend(ctx, p, names, holders(p, names))
}
