//go:build !unix

package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// On this system a command cannot be ended together with all that it has started, so none is run.
var errNoCommands = errors.New("commands cannot be run on this system: zkr could not end them when the lock is lost")

type signals chan os.Signal

func listen() signals { return nil }

func (signals) stop() {}

func raiseInterrupt() {}

func outlivePipes() {}

// isClosed reports nothing here: writing to a stream that is closed fails.
func isClosed(any) bool { return false }

func ends(os.Signal) bool { return false }

func endedBy(os.Signal) error { return nil }

func (signals) ending(ctx context.Context) (context.Context, func() error) {
	return ctx, func() error { return nil }
}

// canRun refuses to run commands.
func canRun() error { return errNoCommands }

func (a *app) runHeld(context.Context, *protocol.Client, held, program, signals, io.Reader) error {
	return canRun()
}
