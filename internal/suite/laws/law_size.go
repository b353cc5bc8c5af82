package laws

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Sized are the calls that carry data of the user's own.
var sized = []struct {
	name string
	call func(ctx context.Context, s *Stage, data []byte) error
}{
	{"queue.Offer", func(ctx context.Context, s *Stage, data []byte) error {
		_, err := queue.New(s.Client, s.Path).Offer(ctx, data)
		return err
	}},
	{"queue.OfferKey", func(ctx context.Context, s *Stage, data []byte) error {
		_, err := queue.New(s.Client, s.Path).OfferKey(ctx, "key", data)
		return err
	}},
	{"queue.OfferAfter", func(ctx context.Context, s *Stage, data []byte) error {
		_, err := queue.New(s.Client, s.Path).OfferAfter(ctx, time.Hour, data)
		return err
	}},
	{"group.Join", func(ctx context.Context, s *Stage, data []byte) error {
		m, err := group.New(s.Client, s.Path).Join(ctx, "me", data)
		if err == nil {
			err = m.Leave(ctx)
		}
		return err
	}},
	{"group.Member.Set", func(ctx context.Context, s *Stage, data []byte) error {
		m := must(group.New(s.Client, s.Path).Join(ctx, "me", nil))
		return errors.Join(m.Set(ctx, data), m.Leave(ctx))
	}},
	{"election.Campaign", func(ctx context.Context, s *Stage, data []byte) error {
		term, err := election.New(s.Client, s.Path).Campaign(ctx, data)
		if err == nil {
			err = term.Resign(ctx)
		}
		return err
	}},
	{"election.Term.Proclaim", func(ctx context.Context, s *Stage, data []byte) error {
		term := must(election.New(s.Client, s.Path).Campaign(ctx, nil))
		return errors.Join(term.Proclaim(ctx, data), term.Resign(ctx))
	}},
	{"lock.Lock with owner data", func(ctx context.Context, s *Stage, data []byte) error {
		l, err := lock.New(s.Client.With(protocol.WithOwnerData(data)), s.Path).Lock(ctx)
		if err == nil {
			err = l.Unlock(ctx)
		}
		return err
	}},
	{"recipe.Session.Create", func(ctx context.Context, s *Stage, data []byte) error {
		return must(recipe.SessionOf(ctx, s.Client)).Create(ctx, s.Path, data, 0)
	}},
	{"recipe.Session.Multi", func(ctx context.Context, s *Stage, data []byte) error {
		_, err := must(recipe.SessionOf(ctx, s.Client)).Multi(ctx, &zk.CreateRequest{Path: s.Path, Data: data, Acl: zk.WorldACL(zk.PermAll)})
		return err
	}},
}

// Size gives calls more data than a server takes. They return ErrTooLarge, and nothing of it is sent:
// a server would end the connection, on which others wait for answers. Just below the limit, the call
// succeeds or returns a typed error.
func Size(t *testing.T, p *Player) {
	const limit = 1048575 // of a packet
	sizes := []int{limit - 100_000, limit - 1000, limit - 100, limit, limit + 1, 1_572_700, 1_572_850, 3_000_000}
	title := "What comes of a call with too much data."
	b := &book{name: "size", title: title}
	p.open(b)
	for _, verb := range sized {
		t.Run(verb.name, func(t *testing.T) {
			sc := &scene{Player: p, book: b, row: Row{verb.name, func(*Stage) Verb { return Verb{} }}}
			for _, size := range sizes {
				sc.play(t, setting{}, func(s *Stage, _ Verb) {
					data := make([]byte, size)
					for i := range data {
						data[i] = 'x'
					}
					held := must(lock.New(s.Client, s.Path+"-held").Lock(s.ctx))
					ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
					defer cancel()
					dials, err := s.Link.Count(recipestest.OpConnect), verb.call(ctx, s, data)
					text := class(err)
					if s.Link.Count(recipestest.OpConnect) != dials || held.Err() != nil {
						text = "! " + text + "; the connection broke"
					} else if err != nil && text != "too large" && size > limit {
						text = "! " + text
					}
					check(held.Unlock(s.ctx))
					s.rest()
					sc.note("bytes", fmt.Sprint(size), text)
				})
			}
			b.cells = append(b.cells, sc.cells...)
		})
	}
	p.compare(t, b)
}
