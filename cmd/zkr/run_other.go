//go:build !unix

package main

import (
	"context"
	"io"
	"os"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/protocol"
)

type signals chan os.Signal

func listen() signals { return nil }

func (signals) stop() {}

func raiseInterrupt() {}

func outlivePipes() {}

// isClosed always returns false: writing to a closed stream fails here.
func isClosed(any) bool { return false }

func ends(os.Signal) bool { return false }

func endedBy(os.Signal) error { return nil }

func (signals) ending(ctx context.Context) (context.Context, func() error) {
	return ctx, func() error { return nil }
}

func (a *app) runHeld(context.Context, *protocol.Client, held, program, signals, io.Reader) error {
	return guard.Usable()
}
