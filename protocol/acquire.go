package protocol

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// ErrBusy is returned to those who do not want to wait and would have to. Recipes have errors of their own for that.
var ErrBusy = errors.New("busy")

// errGone says that a node of ours was deleted before it was granted.
var errGone = errors.New("node deleted while waiting")

// acquire calls attempt under one session after the other until it has an outcome: what ended with its session, or
// with its node, begins again. A grant that comes when ctx has ended is given back.
func (c *Client) acquire(ctx context.Context, recipe, path string, data []byte, attempt func(*Session) (*Grant, error)) (*Grant, error) {
	if err := validate(c, path, data); err != nil {
		return nil, err
	}
	began := time.Now()
	g, err := persist(ctx, c, attempt)
	if err == nil && ctx.Err() != nil {
		late := g
		c.spawn(func() { Release(late.session.life, late) })
		g, err = nil, contextError(ctx)
	}
	e := Event{Kind: Waited, Recipe: recipe, Path: path, Duration: time.Since(began), Err: err}
	if err == nil {
		e.Session, e.Token = g.session.ID(), g.token
	}
	c.observe(e)
	return g, err
}

// persist calls attempt under one session after the other, paced by the client's back-off, until it has an outcome.
func persist[T any](ctx context.Context, c *Client, attempt func(*Session) (T, error)) (v T, err error) {
	var pause backoff.BackOff
	for {
		s, err := c.Session(ctx)
		if err != nil {
			return v, err
		}
		began := time.Now()
		v, err := attempt(s)
		again := errors.Is(err, errGone) || s.Err() != nil && !errors.Is(err, ErrClosed)
		if err == nil || !again || ctx.Err() != nil {
			return v, err
		}

		// A session that has lasted was of use: what ends it is a failure of its own.
		if pause == nil || time.Since(began) > s.Timeout() {
			pause = c.newBackOff()
		}
		if err := c.pause(ctx, c.closing.Done(), pause.NextBackOff(), err); err != nil {
			return v, err
		}
	}
}
