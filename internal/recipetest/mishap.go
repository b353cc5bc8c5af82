package recipetest

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Mishap befalls one client's session or network, or the server, some time after the one before.
type Mishap struct {
	After  time.Duration
	Victim int
	Kind   string
	Lasts  time.Duration
}

// What [Befall] can do: to a network for some time, to a network once, to a session, to the server.
const (
	Cut           = "cut"
	Stall         = "stall"
	StallRequests = "stall requests"
	StallReplies  = "stall replies"
	LostReplies   = "lost replies"
	Slow          = "slow"
	Expiry        = "expiry"
	Reap          = "reap"
)

// DrawDuration draws one of at most that much.
func DrawDuration(t *rapid.T, most time.Duration, label string) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, label))
}

// DrawMishaps draws some for so many possible victims: of all kinds, and of those that the recipe adds.
func DrawMishaps(t *rapid.T, victims int, own ...string) []Mishap {
	kinds := append([]string{Cut, Stall, StallRequests, StallReplies, LostReplies, Slow, Expiry, Reap}, own...)
	var all []Mishap
	for range rapid.IntRange(0, 12).Draw(t, "mishaps") {
		all = append(all, Mishap{
			After:  DrawDuration(t, 10*time.Second, "after"),
			Victim: rapid.IntRange(0, victims-1).Draw(t, "victim"),
			Kind:   rapid.SampledFrom(kinds).Draw(t, "kind"),
			Lasts:  DrawDuration(t, 20*time.Second, "lasts"),
		})
	}
	return all
}

// Befall does what m says to the client behind link, of an embedded server. It returns false if m is of a kind that
// the recipe added.
func Befall(ctx context.Context, srv *recipestest.Server, link *recipestest.Link, c *protocol.Client, m Mishap) bool {
	switch m.Kind {
	case Cut:
		link.Cut()
	case Stall:
		link.Stall()
	case StallRequests:
		link.StallRequests()
	case StallReplies:
		link.StallReplies()
	case LostReplies:
		link.LoseReply(recipestest.OpAny, 2)
		return true
	case Slow:
		link.Delay(m.Lasts / 40)
		return true
	case Expiry:
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if s, err := c.Session(soon); err == nil {
			srv.Embedded().ExpireSession(s.ID())
		}
		return true
	case Reap:
		srv.Embedded().ReapContainers()
		return true
	default:
		return false
	}
	time.AfterFunc(m.Lasts, link.Heal)
	return true
}

// A Stage is a server in memory and some clients, each with a network of its own. It belongs into a bubble of
// testing/synctest.
type Stage struct {
	*recipestest.Server
	Links   []*recipestest.Link
	Clients []*protocol.Client
}

// NewStage makes a stage for n clients.
func NewStage(t *testing.T, n int) *Stage {
	t.Helper()
	s := &Stage{Server: recipestest.Start(t, recipestest.InMemory())}
	for range n {
		link := s.Link(t)
		s.Links = append(s.Links, link)
		s.Clients = append(s.Clients, link.Client(t))
	}
	return s
}

// Befall lets the mishaps happen, one after the other, until all have or ctx ends. Those of the recipe's own kinds are
// left to own.
func (s *Stage) Befall(ctx context.Context, mishaps []Mishap, own func(Mishap)) {
	for _, m := range mishaps {
		select {
		case <-time.After(m.After):
		case <-ctx.Done():
			return
		}
		if !Befall(ctx, s.Server, s.Links[m.Victim], s.Clients[m.Victim], m) {
			own(m)
		}
	}
}

// Calm ends what has befallen the networks.
func (s *Stage) Calm() {
	for _, l := range s.Links {
		l.Heal()
		l.Delay(0)
	}
}
