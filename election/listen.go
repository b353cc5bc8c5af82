package election

import (
	"context"
	"errors"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// A State is what [Election.Listen] tells of an election.
type State struct {
	// Term is the term that Listen holds, or nil. Its Err reports a loss that is not told yet.
	Term *Term

	// Leader is the leader as seen last: while there is a Term, its own candidate. It is vacant
	// if there is none, and outlasts the term until a change is seen.
	Leader Leader
}

// Listen takes part in the election as [Election.Run] does, and calls f instead of a function that
// leads. It calls f with the present state first, and then for every change: a term has begun or
// ended, or another leader, another value or a vacancy was seen.
//
//	err := e.Listen(ctx, []byte("10.0.0.7:8080"), func(s election.State) {
//		service.Accept(s.Term)            // nil while another replica leads
//		service.RedirectTo(s.Leader.Value)
//	})
//
// All calls of f come one at a time and in order, on the goroutine that has called Listen. There is
// none after Listen has returned, and Listen returns only when ctx ends or it has failed. Between
// two terms there always is a call without a term. A term that ends before f could be told of it is
// left out, and so are changes that [Election.Observe] passes over.
//
// When f is called with a term, its Err is nil, so no other candidate leads. When ctx ends, f is
// called without the term and returns before Listen resigns: no other candidate leads meanwhile
// either. All other ends are told as soon as they are noticed: the loss of the session, a
// [Term.Resign], an operator's [Election.Break]. The next leader may be elected before f has
// returned. What must not overlap belongs under [Term.Context], and under [Term.Check] or
// [Term.Token].
//
// f may block, and may call the election, the term and the client. Meanwhile the term lasts or is
// lost by itself, [Election.Leading] says which, and nothing is told. Then f gets the newest
// leader. Listen neither resigns nor campaigns again before f has returned. If f panics, so does
// Listen, after it has resigned.
//
// After a lost session Listen campaigns in the next one, at the end of the line. It pauses after
// short terms, as [WithBackOff] says. It returns nil if ctx has ended, or [protocol.ErrLost] if the
// term was lost as well. Its other errors are those of [Election.Campaign] and Observe. Listen
// costs what Campaign and Observe cost. Concurrent calls are candidates of their own. The caller
// must not change the value before Listen returns.
func (e *Election) Listen(ctx context.Context, value []byte, f func(State)) error {
	if f == nil {
		return e.recipe.Wrap(errors.New("nil function"))
	}
	if err := e.recipe.ValidateCall(ctx, value); err != nil {
		return err
	}

	working, stop := context.WithCancelCause(ctx)
	l := &listener{f: f, value: value, calls: make(chan func()), gone: make(chan struct{})}
	ran := make(chan error, 1)

	// However f ends, the term is given back before Listen ends.
	var wait sync.WaitGroup
	defer wait.Wait()
	defer close(l.gone)
	defer stop(nil)

	wait.Go(func() {
		o := &observation{election: e, yield: func(leader Leader, s *protocol.Session) bool {
			l.call(func() { l.saw(leader, s) })
			return true
		}}
		stop(o.run(working))
	})
	wait.Go(func() { ran <- e.Run(working, value, l.lead) })

	for {
		select {
		case call := <-l.calls:
			call()
		case err := <-ran:
			if err == nil && ctx.Err() == nil {
				err = context.Cause(working) // Observe has failed
			}
			return err
		}
	}
}

// A listener is one use of [Election.Listen]. Its state belongs to the goroutine of Listen.
type listener struct {
	f     func(State)
	value []byte
	calls chan func()   // for the goroutine of Listen to call
	gone  chan struct{} // closed when that calls no more

	state State
	told  bool              // f was called
	own   int64             // the token of the last term that was told of
	in    *protocol.Session // that of the term
	later *Leader           // was seen while the end of the term is not told yet
}

// call has f called on the goroutine of Listen, and blocks until it has returned or Listen ends.
func (l *listener) call(f func()) {
	done := make(chan struct{})
	select {
	case l.calls <- func() { f(); close(done) }:
	case <-l.gone:
		return
	}
	select {
	case <-done:
	case <-l.gone:
	}
}

// lead tells of one term. Run gives the term back once lead has returned.
func (l *listener) lead(held context.Context, t *Term) error {
	l.call(func() {
		if t.Err() == nil {
			l.begin(t)
		}
	})
	<-held.Done()
	l.call(l.end)
	return nil
}

// begin tells of a term. If its leader was observed before, it may have proclaimed another value.
func (l *listener) begin(t *Term) {
	leader := Leader{l.value, t.Token()}
	if l.state.Leader.Token == leader.Token {
		leader = l.state.Leader
	}
	l.own, l.in = leader.Token, t.grant.Session()
	l.tell(State{t, leader})
}

// end tells of the end of a term that was told of.
func (l *listener) end() {
	if l.state.Term == nil {
		return
	}
	s := State{Leader: l.state.Leader}
	if l.later != nil {
		s.Leader = *l.later
	}
	l.tell(s)
}

// saw tells of a leader that was observed in s.
func (l *listener) saw(leader Leader, s *protocol.Session) {
	if l.in != nil && l.in.ID() != s.ID() && l.in.Err() != nil {
		l.own = 0 // in a later session, tokens may begin anew: the ensemble has lost its data
	}

	switch t := l.state.Term; {
	case !leader.Vacant() && leader.Token < l.own:
		// The observer lags behind the term that has begun. Tokens of other leaders need not grow:
		// that of a reader which was a writer is greater than those of the candidates behind it.
	case t != nil && (leader.Token != t.Token() || t.Err() != nil):
		l.later = &leader // the end of the term comes first
	default:
		l.tell(State{t, leader})
	}
}

// tell calls f if the state has changed.
func (l *listener) tell(s State) {
	l.later = nil
	if l.told && s.Term == l.state.Term && s.Leader.same(l.state.Leader) {
		return
	}
	l.state, l.told = s, true
	l.f(s)
}
