package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// workIfTold makes this process a worker if its environment says so. Then it doesn't return.
func workIfTold() {
	config := os.Getenv(workerEnv)
	if config == "" {
		return
	}
	if err := runWorker(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(0)
}

// runWorker is the main function of a worker.
func runWorker(config string) error {
	w := &worker{}
	if err := json.Unmarshal([]byte(config), &w.workerConfig); err != nil {
		return err
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	commands := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			switch command := lines.Text(); command {
			case cmdKeep, cmdHurry, cmdFree:
				// These commands don't end the current command.
				w.pace.Store(command)
			default:
				commands <- command
			}
		}
		close(commands)
		cancel()
	}()

	var err error
	if w.fenced, err = rpc.Dial("unix", w.Store); err != nil {
		return err
	}
	w.client, err = protocol.Connect(ctx, w.Connect, protocol.WithSessionTimeout(w.Timeout))
	if err != nil {
		// The parent has closed the input, so this isn't a failure.
		if ctx.Err() != nil {
			return nil
		}
		return err
	}

	defer w.client.Close()
	w.serve(ctx, recipes[w.Recipe].workload(w), commands)
	return nil
}

// serve executes the commands until there are no more.
func (w *worker) serve(ctx context.Context, do workload, commands <-chan string) {
	command, ok := <-commands
	for ok {
		var cancel context.CancelFunc
		w.life, cancel = context.WithCancel(ctx)
		w.proves = command == cmdProve
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.obey(command, do)
		}()

		// The next command ends this command.
		command, ok = <-commands
		cancel()
		<-done
	}
}

// obey executes a command until w.life ends.
func (w *worker) obey(command string, do workload) {
	if command == cmdRest {
		var err error
		if do.rest != nil {
			// At rest, nothing may be left of earlier steps.
			err = do.rest()
		}
		if err == nil {
			err = w.sample()
		}
		w.print(line{Done: command, Error: text(err)})
		return
	}

	// It goes on after it has proved itself, because other processes may need it for their proof.
	proved := false
	for w.life.Err() == nil {
		err := do.step()
		if w.proves && err == nil && !proved {
			proved = true
			w.print(line{Done: command})
		}
		// A short pause, so that other processes get their turn.
		sleep(w.life, time.Duration(rand.Int64N(int64(60*time.Millisecond))))
	}
}

// sample compares this process's usage with its usage at its first rest. Work in the background can
// take a while to end.
func (w *worker) sample() (err error) {
	for range 50 {
		now := presentUsage()
		// The first sample is the measure for all later samples.
		if w.first == (usage{}) {
			w.first = now
		}
		if err = now.exceeds(w.first); err == nil {
			return nil
		}
		sleep(w.life, 100*time.Millisecond)
	}
	return err
}
