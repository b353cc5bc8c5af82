package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Bag is the history of things that are put in and come out once (a queue without its order).
// Things are told apart by their names, which should be unique. After an error that wraps
// protocol.ErrUncertain or protocol.ErrLost, the outcome of a call is unknown. After any other
// error, nothing has happened.
type Bag struct {
	what   string
	mu     sync.Mutex // protects things
	things map[string]*thing
}

type thing struct {
	put, maybePut bool
	out, maybeOut int
	seen          bool
}

// Bag begins a history, which is checked in the end. By then, everything that was put in must have
// come out once. So [World.Finally] should empty the queue and call [Bag.Out].
func (w *World) Bag(what string) *Bag {
	b := &Bag{what: what, things: make(map[string]*thing)}
	w.Check(b.check)
	return b
}

// Put notes that things were put in together, or that a call to put them in failed with err.
func (b *Bag) Put(err error, names ...string) {
	b.each(names, func(t *thing) {
		t.put = t.put || err == nil
		t.maybePut = t.maybePut || unknown(err)
	})
}

// Out notes that things came out for good (they were taken, acknowledged, or found in the end), or
// that a call to get them failed with err.
func (b *Bag) Out(err error, names ...string) {
	b.each(names, func(t *thing) {
		switch {
		case err == nil:
			t.out++
		case unknown(err):
			t.maybeOut++
		}
	})
}

// Seen notes that things were there and may come back (they were reserved, or looked at).
func (b *Bag) Seen(names ...string) {
	b.each(names, func(t *thing) { t.seen = true })
}

func (b *Bag) each(names []string, note func(*thing)) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, name := range names {
		if b.things[name] == nil {
			b.things[name] = &thing{}
		}
		note(b.things[name])
	}
}

// unknown reports whether err leaves the outcome of a call unknown.
func unknown(err error) bool {
	return errors.Is(err, protocol.ErrUncertain) || errors.Is(err, protocol.ErrLost)
}

func (b *Bag) check() error {
	b.mu.Lock()
	defer b.mu.Unlock()

	for _, name := range slices.Sorted(maps.Keys(b.things)) {
		t := b.things[name]
		switch {
		case !t.put && !t.maybePut && (t.seen || t.out > 0):
			return fmt.Errorf("%s: %s was never put in, and came out", b.what, name)
		case t.out > 1:
			return fmt.Errorf("%s: %s came out %d times", b.what, name, t.out)
		// A call whose outcome is unknown may have taken it.
		case t.put && t.out+t.maybeOut == 0:
			return fmt.Errorf("%s: %s has vanished", b.what, name)
		}
	}

	return nil
}
