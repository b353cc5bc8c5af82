package laws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/barrier"
	"github.com/zkrecipes/zkrecipes/group"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Sized are the calls that carry data of the user's own.
var sized = []struct {
	name string
	call func(ctx context.Context, s *Stage, data []byte) (*Held, error)
}{
	{"queue.Offer", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		return nil, only(plain.make(s).Offer(ctx, data))
	}},
	{"queue.OfferKey", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		return nil, only(plain.make(s).OfferKey(ctx, "key", data))
	}},
	{"queue.OfferAfter", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		return nil, only(plain.make(s).OfferAfter(ctx, time.Hour, data))
	}},
	{"group.Join", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		return member(group.New(s.Client, s.Path).Join(ctx, "me", data))
	}},
	{"group.Member.Set", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		m := must(group.New(s.Client, s.Path).Join(ctx, "me", nil))
		return &Held{nil, m.Leave}, m.Set(ctx, data)
	}},
	{"election.Campaign", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		return held(terms.back)(terms.make(s).Campaign(ctx, data))
	}},
	{"election.Term.Proclaim", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		term := must(terms.make(s).Campaign(ctx, nil))
		return &Held{nil, term.Resign}, term.Proclaim(ctx, data)
	}},
	{"lock.Lock with owner data", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		return held(mutex.back)(lock.New(s.Client.With(protocol.WithOwnerData(data)), s.Path).Lock(ctx))
	}},
	{"barrier.Set ephemeral", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		b := barrier.New(s.Client, s.Path, barrier.WithEphemeral(), barrier.WithData(data))
		return &Held{nil, b.Remove}, b.Set(ctx)
	}},
	{"recipe.Session.Create", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		return nil, must(recipe.SessionOf(ctx, s.Client)).Create(ctx, s.Path, data, 0)
	}},
	{"recipe.Session.Multi", func(ctx context.Context, s *Stage, data []byte) (*Held, error) {
		create := &zk.CreateRequest{Path: s.Path, Data: data, Acl: zk.WorldACL(zk.PermAll)}
		return nil, only(must(recipe.SessionOf(ctx, s.Client)).Multi(ctx, create))
	}},
}

// Size gives calls more data than a server accepts. They must return ErrTooLarge and send nothing,
// because the server would close the connection (on which other calls wait for their answers). Just
// below the limit, the call must succeed or return a typed error.
func Size(t *testing.T, p *Player) {
	const limit = 1048575 // of a packet
	sizes := []int{limit - 100_000, limit - 1000, limit - 100, limit, limit + 1, 1_572_700, 1_572_850, 3_000_000}
	if testing.Short() && !p.everything() {
		sizes = []int{limit - 100, limit + 1, 3_000_000}
	}

	title := "What comes of a call with too much data."
	b := &book{name: "size", title: title}
	p.open(b)

	for _, verb := range sized {
		t.Run(verb.name, func(t *testing.T) {
			sc := &scene{Player: p, book: b, row: Row{verb.name, func(*Stage) Verb { return Verb{} }}}
			for _, size := range sizes {
				sc.play(t, setting{}, func(s *Stage, _ Verb) {

					data := bytes.Repeat([]byte("x"), size)
					holds := must(lock.New(s.Client, s.Path+"-held").Lock(s.ctx))
					ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
					defer cancel()
					dials := s.Link.Count(recipestest.OpConnect)

					h, err := verb.call(ctx, s, data)
					err = errors.Join(err, outcome{held: h}.back())
					text := class(err)

					if s.Link.Count(recipestest.OpConnect) != dials || holds.Err() != nil {
						text = "! " + text + "; the connection broke"
					} else if err != nil && text != "too large" && size > limit {
						text = "! " + text
					}

					check(holds.Unlock(s.ctx))
					s.rest()
					sc.note("bytes", fmt.Sprint(size), text)
				})
			}
			b.cells = append(b.cells, sc.cells...)
		})
	}
	p.compare(t, b)
}
