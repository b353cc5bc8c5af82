package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/must"
	"github.com/zkrecipes/zkrecipes/internal/real/interop"
)

// A peer is a process in which another language's library does the same work as we do. It measures
// its own time. Its commands are package interop's commands for the benchmark.
type peer struct{ *interop.Peer }

// startPeers starts Curator and kazoo, and notes which isn't installed.
func (e *env) startPeers(ctx context.Context) {
	o := interop.Options{
		Servers:        e.address,
		SessionTimeout: sessionTimeout,
		Java:           []string{"-Xmx1g", "-Xss256k"},
		Prepare:        detach,
	}

	for _, start := range []func(context.Context, interop.Options) (*interop.Peer, error){interop.StartCurator, interop.StartKazoo} {
		// Each peer has its own time to start, because the first may have used up much of it (Java
		// compiles its program).
		ctx, cancel := context.WithTimeout(ctx, peerTimeout)
		p, err := start(ctx, o)
		cancel()
		switch {
		case err == nil:
			e.peers = append(e.peers, &peer{p})
		case errors.Is(err, interop.ErrNotInstalled):
			e.absent = append(e.absent, err.Error())
		default:
			must.Succeed(err)
		}
	}
}

// peerTimeout bounds operations that take seconds.
const peerTimeout = 45 * time.Second

// do gives the peer a command. It returns how many operations were done, and how long they took.
func (p *peer) do(ctx context.Context, command string, args ...any) (ops int, elapsed time.Duration) {
	words := []string{command, "bench"} // one handle, because its thread owns the line that is drained
	for _, a := range args {
		words = append(words, fmt.Sprint(a))
	}

	late := fmt.Errorf("%s has not answered for %v", p.Name(), peerTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, peerTimeout, late)
	defer cancel()
	result := must.Get(p.Start(words...).Wait(ctx))
	var nanos int64
	if _, err := fmt.Sscan(result, &ops, &nanos); err != nil {
		must.Fail("%s: %s: result %q: %w", p.Name(), command, result, err)
	}
	return ops, time.Duration(nanos)
}

// dismiss ends a failed peer. The following work goes on without it.
func (e *env) dismiss(p *peer) {
	e.peers = slices.DeleteFunc(e.peers, func(q *peer) bool { return p == q })
	// Kill first, because Close gives a hanging process five seconds.
	p.Kill()
	p.Close()
}

// A peerRun is a peer's work in a round, at a new path.
type peerRun func(ctx context.Context, m *meter, p *peer, dir string)

// peersWith returns a contestant for each peer that has a command.
func (e *env) peersWith(command string, run peerRun) (all []*contestant) {
	for _, p := range e.peers {
		if slices.Contains(p.Commands(), command) {
			all = append(all, &contestant{name: p.Name(), peer: p, run: e.onNewPath(func(ctx context.Context, m *meter, dir string) {
				run(ctx, m, p, dir)
			})})
		}
	}
	return all
}

// peersFor is peersWith for a command that peers execute for a whole round, in that many sessions.
func (e *env) peersFor(command string, sessions int) []*contestant {
	return e.peersWith(command, func(ctx context.Context, m *meter, p *peer, dir string) {
		p.measured(ctx, m, command, dir+"/q", sessions, m.slice.Milliseconds())
	})
}

func (p *peer) measured(ctx context.Context, m *meter, command string, args ...any) {
	m.start()
	ops, elapsed := p.do(ctx, command, args...)
	m.stopAt(ops, elapsed)
}
