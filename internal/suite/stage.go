package suite

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Stage is a server in memory and some clients, each with its own network. Use it in a
// testing/synctest bubble.
type Stage struct {
	*recipestest.Server
	Links   []*recipestest.Link
	Clients []*protocol.Client
}

// NewStage makes a stage for n clients.
func NewStage(t *testing.T, n int) *Stage {
	t.Helper()
	s := &Stage{Server: recipestest.Start(t, recipestest.WithInMemory())}
	for range n {
		link := s.Link(t)
		s.Links = append(s.Links, link)
		s.Clients = append(s.Clients, link.Client(t))
	}

	return s
}

// Calm ends the faults of the networks.
func (s *Stage) Calm() {
	for _, l := range s.Links {
		l.Heal()
		l.Delay(0)
	}
}
