package sim

import (
	"fmt"
	"time"
)

// Shared is the history of something with either one exclusive holder or several shared holders (a
// lock for readers and writers).
type Shared struct{ turns }

// Shared begins a history, which is checked in the end.
func (w *World) Shared(what string) *Shared {
	s := &Shared{w.turns(what)}
	w.Check(s.check)
	return s
}

// Begin is [Exclusive.Begin] for a holder that is exclusive or shared.
func (s *Shared) Begin(c *Client, called time.Time, g Grant, exclusive bool) *Turn {
	return s.begin(c, called, g, exclusive)
}

// check returns an error unless exclusive holders were alone, and holders that exclude each other
// came in the order of their tokens. If a holder is first exclusive and then shared, it keeps its
// token.
func (s *Shared) check() error {
	all, err := s.final()
	if err != nil {
		return err
	}

	for i, a := range all {
		for _, b := range all[:i] {
			// Let a be the turn that began first.
			if b.begun.Before(a.begun) {
				a, b = b, a
			}
			switch {
			case !a.exclusive && !b.exclusive, !a.certain(), !b.certain():
			case b.begun.Before(a.held):
				return fmt.Errorf("%s is not held alone: %s; %s", s.what, a, b)
			case a.token == b.token && a.exclusive != b.exclusive:
			case a.token >= b.token:
				return fmt.Errorf("%s is not granted in order: %s; %s", s.what, a, b)
			}
		}
	}

	return nil
}
