package survey

import "context"

// once recognises package once: calls in line to run, or the nodes of keys that are done.
func (sv *survey) once(ctx context.Context, l *listing, p *Place) error {
	var names []name
	for _, n := range l.names(onceKinds...) {
		if n.library == Ours {
			names = append(names, n)
		}
	}

	if len(names) == 0 && (!l.has("done") || !l.has("order")) {
		return nil
	}

	p.Recipe = Once
	running := make(map[string]bool)
	for _, n := range names {
		running[n.node] = true
	}

	l.claim(func(child string) bool { return running[child] || child == "order" || child == "done" })
	done, _, err := sv.children(ctx, join(l.path, "done"))
	if err != nil {
		return err
	}

	p.Done = len(done)
	return sv.contend(ctx, p, names, holders(p, names))
}
