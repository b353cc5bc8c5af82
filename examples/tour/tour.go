package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// timeout bounds what takes milliseconds unless something is wrong. chapterTime bounds a chapter,
// which takes seconds.
const (
	timeout     = 10 * time.Second
	chapterTime = time.Minute
)

var (
	errInterrupted = errors.New("interrupted")
	errTooSlow     = errors.New("timed out: is ZooKeeper running?")
)

type options struct {
	servers string        // of a real ensemble, or empty
	workers int           // at least 2
	pace    time.Duration // how long each worker holds its lock
}

// A tour is the state that all chapters share.
type tour struct {
	options
	embedded *embedded.Server // nil on a real ensemble
	guide    *protocol.Client // to look around with
	root     string           // of all paths
	began    time.Time

	mu  sync.Mutex // one line at a time
	out io.Writer
}

// run shows all chapters. It leaves no nodes behind, also when ctx ends.
func run(ctx context.Context, out io.Writer, o options) error {
	t := &tour{options: o, out: out, root: "/tour-" + strings.ToLower(rand.Text()[:6])}
	where := "on the ensemble " + o.servers
	if o.servers == "" {
		server, err := embedded.Start(embedded.Config{})
		if err != nil {
			return err
		}
		defer server.Close()
		t.embedded, t.servers = server, server.ConnectString()
		where = "on a ZooKeeper inside this program, at " + t.servers
	}

	t.say("A tour of zkrecipes, %s.", where)
	err := t.show(ctx)
	if err != nil && ctx.Err() != nil {
		err = errInterrupted
	}

	return errors.Join(err, t.leave(ctx))
}

func (t *tour) show(ctx context.Context) (err error) {
	if t.guide, err = t.connect(ctx); err != nil {
		return err
	}

	for i, chapter := range chapters {
		t.say("\n%d. %s\n", i+1, chapter.title)
		t.began = time.Now()
		ctx, cancel := context.WithTimeoutCause(ctx, chapterTime, errTooSlow)
		err := chapter.show(ctx, t)
		cancel()
		if err != nil {
			return err
		}
	}

	return nil
}

// connect opens a session. The errors of closing it do not matter: if the servers are slow to
// answer, it ends by itself.
func (t *tour) connect(ctx context.Context) (*protocol.Client, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errTooSlow)
	defer cancel()
	return protocol.Connect(ctx, t.servers)
}

// leave removes the nodes of the chapters.
func (t *tour) leave(ctx context.Context) error {
	if t.guide == nil {
		return nil
	}
	defer t.guide.Close()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), timeout, errTooSlow)
	defer cancel()
	s, err := t.guide.Session(ctx)
	if err != nil {
		return err
	}
	return remove(ctx, s, t.root)
}

// remove deletes a node and all below it.
func remove(ctx context.Context, s *protocol.Session, path string) error {
	for {
		children, err := protocol.Do(ctx, s, func(c *zk.Conn) ([]string, error) {
			children, _, err := c.Children(s.Path(path))
			return children, err
		})

		for _, child := range children {
			if err := remove(ctx, s, path+"/"+child); err != nil {
				return err
			}
		}
		if err == nil {
			_, err = protocol.Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
				return struct{}{}, c.Delete(s.Path(path), -1)
			})
		}

		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case !errors.Is(err, zk.ErrNotEmpty):
			return err
		}
	}
}

// say prints a paragraph.
func (t *tour) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// tell prints what an actor does, when, and remarks.
func (t *tour) tell(who, what string, more ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	head := fmt.Sprintf("%6.3f s  %-11s  %-15s  ", time.Since(t.began).Seconds(), who, what)
	text := head + strings.Join(more, "\n"+strings.Repeat(" ", 2+len(head)))
	fmt.Fprintln(t.out, "  "+strings.TrimRight(text, " "))
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
