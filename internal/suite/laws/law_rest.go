package laws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/queue"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

// Rest counts the requests of a call, the cost of holding its result or waiting for it, the
// requests of a client that waits for the same lock meanwhile, and whatever grows over a hundred
// calls.
func Rest(t *testing.T, p *Player) {
	p.law(t, law{name: "rest", title: "What a call costs, and what it costs to hold, to wait and to do nothing.", embedded: true, most: 200, cells: func(sc *scene) {
		sc.add("a call", sc.costs)
		if sc.warm {
			return
		}
		if sc.calm.waits() {
			sc.cell("waiting", setting{}, sc.idles)
		}
		if sc.calm.uses {
			sc.add("bothers", sc.bothers)
		}
		sc.add("many calls", sc.grows)
	}})
}

var together = regexp.MustCompile(`Listen|local queue|Revoked|shared, behind`)

// costs notes the requests of a call. It counts the requests of giving back, and the cost of
// holding.
func (sc *scene) costs(t *testing.T) {
	requests := sc.calm.requests()
	var kinds []string
	for _, p := range requests {
		kind := "multi"
		if len(p.parts) == 1 {
			kind, _, _ = strings.Cut(p.parts[0], " ")
		}
		kinds = append(kinds, kind)
	}

	slices.Sort(kinds)
	// A candidate and an observer of one session share requests (and so do callers of a local
	// queue). How many depends on who is first.
	if unsteady := sc.calm.waits() || together.MatchString(sc.row.Name); unsteady && racing.MatchString(sc.row.Name) {
		sc.note("a call", "", fmt.Sprintf("up to %d requests", max(1, (len(requests)+19)/20)*20))
	} else {
		sc.note("a call", "", counted(len(requests), "request")+strings.TrimRight(": "+strings.Join(kinds, ", "), ": "))
	}

	if sc.warm {
		return
	}

	sc.ready(t, setting{}, func(s *Stage, v Verb, _ int) {
		s.rest()
		idle := s.load()
		o := s.do(v, s.ctx)
		s.rest()

		if o.held != nil && o.held.Back != nil {
			sc.note("holding", "", s.idle(idle))
			before := s.Link.Count(recipestest.OpAny)
			o.back()
			s.settled()
			sc.note("giving back", "", counted(s.Link.Count(recipestest.OpAny)-before, "request"))
			s.rest()
		}

		sc.note("afterwards", "", s.idle(idle))
	})
}

// bothers counts the requests that a holder's call costs the next client in line.
func (sc *scene) bothers(t *testing.T) {
	var theirs *recipestest.Link
	in := setting{view: func(s *Stage, link bool, opts []protocol.ConnectOption) *protocol.Client {
		if link {
			return s.Link.Client(s.T, opts...)
		}
		theirs = s.Server.Link(s.T)
		return theirs.Client(s.T, opts...)
	}}
	sc.ready(t, in, func(s *Stage, v Verb, _ int) {
		rival := s.other().verb(sc.row)
		var waiter sync.WaitGroup
		waiter.Go(func() { rival.prepare() })
		s.rest()
		time.Sleep(100 * time.Millisecond) // clients that hold something prove their sessions twice a second
		before := theirs.Count(recipestest.OpAny)
		o := s.do(v, s.ctx)
		s.settled()
		sc.note("who waits", "", counted(theirs.Count(recipestest.OpAny)-before, "request"))
		o.back()
		s.rest()
		s.Other().Close()
		waiter.Wait()
	})
}

// idles counts what waiting costs: nothing happens that would end the wait.
func (sc *scene) idles(s *Stage, v Verb, _ int) {
	s.rest()
	idle := s.load()
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan outcome)
	go func() {
		held, err := v.Call(ctx)
		done <- outcome{held: held, err: err}
	}()
	s.rest()
	sc.note("waiting", "", s.idle(idle))
	cancel()
	(<-done).back()
	if v.Beside != nil {
		v.Beside(s.ctx)
	}
}

// grows makes a hundred calls, and compares what there is with what there was after ten.
func (sc *scene) grows(t *testing.T) {
	sc.play(t, setting{lasts: 24 * time.Hour, packets: 100 * storm}, func(s *Stage, v Verb) {
		var before load
		for n := range 100 {
			must(v.prepare())
			o := s.do(v, s.ctx)
			if errors.Is(o.err, queue.ErrFull) {
				sc.note("a hundred calls", "", "fills its queue")
				return
			}
			if err := o.back(); err != nil || calm(o.err) != nil {
				sc.note("a hundred calls", "", "! "+class(o.err)+", "+class(err))
				return
			}
			if n == 9 {
				s.rest()
				before = s.load()
			}
		}
		s.rest()
		text := "nothing grows"
		if more := s.load().since(before, 10); more != "" {
			text = "grows by " + strings.TrimPrefix(more, ", ")
		}
		sc.note("a hundred calls", "", text)
	})
}

// A load is the work of a client and its server.
type load struct{ requests, nodes, watches, goroutines int }

func (s *Stage) load() load {
	s.reap()
	s.settled()
	mntr := s.fourLetters("mntr")
	return load{s.Link.Count(recipestest.OpAny), number(mntr, "zk_znode_count"), number(mntr, "zk_watch_count"), s.count()}
}

// idle returns the cost of a minute without a call, beyond its cost before.
func (s *Stage) idle(before load) (text string) {
	requests := s.Link.Count(recipestest.OpAny)
	time.Sleep(time.Minute)
	now := s.load()
	// Proofs of the session come at uneven times: a table has tens.
	text = "no requests"
	switch n := now.requests - requests; {
	case n > 200:
		text = "hundreds of requests a minute"
	case n > 10:
		text = fmt.Sprintf("%d requests a minute", (n+5)/10*10)
	case n > 0:
		text = "up to 10 requests a minute"
	}
	before.nodes = now.nodes
	return text + now.since(before, 0)
}

// since says what there is more of than before, if that is more than some.
func (l load) since(before load, some int) (text string) {
	for _, d := range []struct {
		n    int
		what string
	}{
		{l.nodes - before.nodes, "node"}, {l.watches - before.watches, "watch"}, {l.goroutines - before.goroutines, "goroutine"},
	} {
		if d.n > some {
			text += ", " + counted(d.n, d.what)
		}
	}
	return text
}

// fourLetters asks the server for its own figures.
func (s *Stage) fourLetters(word string) string {
	c := must(s.Server.Dial("tcp", s.Server.ConnectString(), time.Second))
	defer c.Close()
	must(c.Write([]byte(word)))
	return string(must(io.ReadAll(c)))
}

func number(text, name string) int {
	m := regexp.MustCompile(name + `\s+(\d+)`).FindStringSubmatch(text)
	return must(strconv.Atoi(m[1]))
}

func counted(n int, what string) string {
	switch {
	case n == 0:
		return "no " + what
	case n == 1:
		return "1 " + what
	case what == "watch":
		return strconv.Itoa(n) + " watches"
	}
	return strconv.Itoa(n) + " " + what + "s"
}
