package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A grant is held. All recipes have such a type.
type grant interface {
	Token() int64
	Err() error
}

// acquire calls a verb that waits. If it returns nothing, acquire notes how it failed.
func acquire[G grant](w *worker, kind string, verb func(context.Context) (G, error)) (*Op, G, error) {
	ctx, cancel := w.wait()
	defer cancel()
	o := w.call(kind, "")
	g, err := verb(ctx)
	if err != nil {
		w.returns(o, err, Failed)
	}
	return o, g, err
}

// beat is how often a holder asks whether it still holds.
const beat = 10 * time.Millisecond

// hold notes that the call has returned g. It holds g for d (or as w.pace says), or until g is
// lost. If writes is true, the holder also writes to the fenced store. Each write comes a beat
// after the question whether it holds, so that a pause longer than the session timeout makes a
// stale holder write.
func (w *worker) hold(o *Op, g grant, d time.Duration, writes bool) {
	o.Return, o.Outcome, o.Token = w.now(), OK, g.Token()
	o.Begun = o.Return
	for end := o.Begun + Stamp(d); w.holds(o, g); {
		w.pause(g, beat)
		// Print each state, because a kill can come at any moment. (If it came between a write and
		// its print, nobody would know whose write that was.)
		w.tell(o)
		if writes {
			write := Write{Recipe: o.Recipe, Client: o.Client, Life: o.Life, ID: o.ID, Token: o.Token}
			if err := w.fenced.Call(writeMethod, write, new(bool)); err != nil {
				panic(err) // the parent has ended
			}
			w.holds(o, g) // was it refused although it holds?
		}
		over := o.Held >= end
		switch w.pace.Load() {
		case cmdKeep:
			over = false
		case cmdHurry:
			over = true
		}
		// The spell ends with the lock held. release notes when the hold ends.
		if over || w.life.Err() != nil {
			return
		}
	}

	o.Over = w.now()
	w.tell(o)
}

// holds asks whether g is held. If so, it notes when it asked.
func (w *worker) holds(o *Op, g grant) bool {
	// Take the stamp before asking, so that the hold covers it.
	at := w.now()
	if g.Err() != nil {
		return false
	}
	o.Held = at
	return true
}

// pause blocks for d, or until g has ended.
func (w *worker) pause(g grant, d time.Duration) {
	var done <-chan struct{}
	if g, ok := g.(interface{ Done() <-chan struct{} }); ok {
		done = g.Done()
	}
	select {
	case <-time.After(d):
	case <-done:
	}
}

// release gives back the hold of o. It reports whether that certainly succeeded. A loss is no
// error.
func (w *worker) release(o *Op, g grant, release func(context.Context) error) (released bool, err error) {
	ctx, cancel := w.effect()
	if !w.proves && w.chance(8) {
		cancel() // the clean-up must then go on by itself
	}
	defer cancel()
	err = release(ctx)
	// If the release failed and the grant still holds, the hold has no end yet.
	if o.Over == 0 && (err == nil || g.Err() != nil) {
		o.Over = w.now()
	}

	w.tell(o)
	if errors.Is(err, protocol.ErrLost) {
		return false, nil
	}
	return err == nil, err
}

// guarded writes to ZooKeeper with a grant's Check. kind is "guarded", or "late" if the grant was
// given back before.
func (w *worker) guarded(kind string, g grant, check *zk.CheckVersionRequest) {
	ctx, cancel := w.wait()
	defer cancel()
	s, err := w.client.Session(ctx)
	if err != nil {
		return
	}

	register := &zk.SetDataRequest{Path: s.Path(w.Path + registerSuffix), Version: -1}
	o := w.call(kind, "")
	o.Token = g.Token()
	answers, err := s.Conn().Multi(check, register)
	if err == nil {
		o.Zxid = answers[1].Stat.Mzxid
	}

	w.returns(o, err, Unknown)
}

// registerSuffix is appended to a path to make the path of the node for guarded writes.
const registerSuffix = "-register"
