package election

import (
	"context"
	"errors"
	"sync"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A State is an election as [Election.Listen] reports it.
type State struct {
	// Term is the term that Listen holds, or nil. Its Err reports a loss before Listen does.
	Term *Term

	// Leader is the leader as seen last: while there is a Term, its own candidate. It is vacant
	// if there is none, and outlasts the term until a change is seen.
	Leader Leader
}

// Listen takes part in the election as [Election.Run] does and calls f instead of a function that
// leads. It calls f with the present state first, and then for every change: a term has begun or
// ended, or another leader, another value or a vacancy was seen.
//
//	err := e.Listen(ctx, []byte("10.0.0.7:8080"), func(s election.State) {
//		service.Accept(s.Term)            // nil while another replica leads
//		service.RedirectTo(s.Leader.Value)
//	})
//
// All calls of f come one at a time and in order, on the goroutine that has called Listen. Listen
// returns only when ctx ends or it fails, and calls f no more after that. Between two terms there
// is always a call without a term. Listen leaves out a term that ends before it could call f, and
// changes that [Election.Observe] skips.
//
// When f is called with a term, its Err is nil, so no other candidate leads. When ctx ends, Listen
// calls f without the term and resigns only after f has returned. So no other candidate leads
// meanwhile. Listen reports all other ends (such as the loss of the session, or an operator's
// [Election.Break]) as soon as it notices them. Then the next leader can be elected before f
// returns. So work under [Term.Context], and fence what you write with [Term.Multi] or
// [Term.Token].
//
// f can block and can call the election, the term and the client. Meanwhile the term goes on or is
// lost ([Election.Leading] says which), and the next call of f gets the newest leader. Listen
// neither resigns nor campaigns again before f has returned. If f panics, Listen resigns and
// panics.
//
// After a lost session Listen campaigns in the next session, at the end of the line. It pauses
// after short terms (see [WithBackOff]). It returns nil if ctx was cancelled and ctx's error if its
// deadline has passed. If the term was lost as well, it returns [protocol.ErrLost]. It also returns
// the errors of [Election.Campaign] and Observe and costs what both cost. Concurrent calls are
// separate candidates. The caller must not change the value before Listen returns.
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
		o := &observation{election: e, yield: func(leader Leader, s *recipe.Session) bool {
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
	told  bool            // f was called
	own   int64           // the token of the last term that f has seen
	in    *recipe.Session // of that term
	later *Leader         // seen before f was called with the end of the term
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

// lead calls f for one term. Run gives the term back once lead has returned.
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

// begin calls f with a term. If its leader was observed before, it may have proclaimed another
// value.
func (l *listener) begin(t *Term) {
	leader := Leader{l.value, t.Token(), t.Node(), t.grant.Session().ID()}
	if l.state.Leader.Token == leader.Token {
		leader = l.state.Leader
	}
	l.own, l.in = leader.Token, t.grant.Session()
	l.tell(State{t, leader})
}

// end calls f with the end of a term that f has seen.
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

// saw calls f with a leader that was observed in s.
func (l *listener) saw(leader Leader, s *recipe.Session) {
	if l.in != nil && l.in.ID() != s.ID() && l.in.Err() != nil {
		l.own = 0 // in a later session, tokens may begin anew: the ensemble has lost its data
	}

	switch t := l.state.Term; {
	case !leader.Vacant() && leader.Token < l.own:
		// The observer lags behind the term that has begun. Tokens of other leaders need not grow:
		// the token of a downgraded reader is greater than the tokens of the candidates behind it.
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
