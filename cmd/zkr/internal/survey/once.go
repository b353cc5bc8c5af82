package survey

import (
	"bytes"
	"context"
	"slices"
)

// once recognises package once by calls in line to run or by records of keys.
func (sv *survey) once(ctx context.Context, l *listing, p *Place) error {
	names := slices.DeleteFunc(l.names(onceKinds...), func(n name) bool { return n.library != Ours })
	if len(names) == 0 && !l.has("done") {
		return nil
	}

	// Any path can have a child named done. Only records of ours have a token.
	records, err := sv.named(ctx, p, "done", func(string) (name, bool) { return name{}, true })
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
	l.claim(func(child string) bool {
		return child == "done" || slices.ContainsFunc(names, func(n name) bool { return n.node == child })
	})
	return sv.contend(ctx, p, names, holders(p, names))
}
