package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// surveying is what the flags of ps say.
type surveying struct {
	paths      []string
	tree       bool
	watch      bool
	interval   time.Duration
	contenders int
}

func newPsCommand(a *app) *cobra.Command {
	var sv surveying
	cmd := &cobra.Command{
		Use:   "ps PATH…",
		Short: "Show who holds, who waits, since when: of any recipe",
		Long: `ps shows what stands at each PATH and below it: locks, elections, semaphores, queues, barriers and groups,
of this toolkit, and of Curator, kazoo and zk.Lock where they are known. A contender is a line: its path,
recipe and state, who it is as far as its node's data say, its session, since when by the server's clock,
and the name of its node, which break and revoke take. With --tree they are shown as a tree.

A contender is marked as an orphan if no live process can stand behind it, or if it is the second node
of one. A node that is not of its path's recipe is unknown.

With --watch, a terminal shows all of it live, until it is interrupted. Elsewhere it is printed again,
after an empty line, whenever it has changed. With --json there is an object for each PATH, one a line:
docs/zkr.md describes it.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("ps: needs a PATH; / is the whole tree")
			}
			for _, path := range args {
				if err := protocol.ValidatePath(path); err != nil {
					return usagef("ps: %w", err)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sv.paths = args
			switch {
			case sv.interval < 100*time.Millisecond:
				return usagef("ps: --interval %v: must be at least 100ms", sv.interval)
			case sv.contenders < 1:
				return usagef("ps: --limit %d: must be at least 1", sv.contenders)
			}
			client, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer client.Close()

			if sv.watch {
				ctx, cancel := untilInterrupted(cmd.Context())
				defer cancel()
				if isTerminal(a.stdout) && !a.json {
					return a.psLive(ctx, client, sv)
				}
				return ended(ctx, a.psChanges(ctx, client, sv))
			}
			ctx, cancel := a.bound(cmd.Context())
			defer cancel()
			defer a.waiting(func() string { return "waiting for an answer about " + strings.Join(args, ", ") })()
			shown, err := a.psOnce(ctx, client, sv)
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(shown)
			return err
		},
	}

	cmd.Flags().BoolVar(&sv.tree, "tree", false, "show a tree instead of a table")
	cmd.Flags().BoolVar(&sv.watch, "watch", false, "go on, and show every change")
	cmd.Flags().DurationVar(&sv.interval, "interval", time.Second, "how often to look with --watch")
	cmd.Flags().IntVar(&sv.contenders, "limit", 1000, "how many contenders of each line, or elements of each queue, to read")
	return cmd
}

// psOnce returns what ps prints.
func (a *app) psOnce(ctx context.Context, c *protocol.Client, sv surveying) ([]byte, error) {
	var places []*survey.Place
	for _, path := range sv.paths {
		p, err := survey.Look(ctx, c, path, survey.Limits{Contenders: sv.contenders})
		if err != nil {
			return nil, err
		}
		places = append(places, p)
	}

	var b bytes.Buffer
	var err error
	switch {
	case a.json:
		for _, p := range places {
			line, failed := encodeJSON(placeJSON(p))
			b.Write(line)
			err = errors.Join(err, failed)
		}
	case sv.tree:
		for _, p := range places {
			writeTree(&b, p)
		}
	default:
		err = writeTable(&b, places)
	}
	return b.Bytes(), err
}

// psChanges prints what ps prints, and again whenever that has changed.
func (a *app) psChanges(ctx context.Context, c *protocol.Client, sv surveying) error {
	var last []byte
	for {
		stop := a.waiting(func() string { return "waiting for an answer about " + strings.Join(sv.paths, ", ") })
		shown, err := a.psOnce(ctx, c, sv)
		stop()
		if err != nil {
			return err
		}
		if !bytes.Equal(shown, last) {
			if last != nil && !a.json {
				shown = append([]byte("\n"), shown...)
			}
			if _, err := a.stdout.Write(shown); err != nil {
				return err
			}
			last = bytes.TrimPrefix(shown, []byte("\n"))
		}
		if pause(ctx, sv.interval) != nil {
			return ctx.Err()
		}
	}
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// psLive shows what ps prints on the whole terminal, until ctx ends. While no server answers it
// shows what was seen last, and says since when that is.
func (a *app) psLive(ctx context.Context, c *protocol.Client, sv surveying) error {
	fmt.Fprint(a.stdout, enterScreen)
	defer fmt.Fprint(a.stdout, leaveScreen)

	var shown []byte
	seen := time.Now()
	for {
		// An answer that takes longer than a look is no answer.
		limited, cancel := context.WithTimeout(ctx, max(2*time.Second, sv.interval))
		fresh, err := a.psOnce(limited, c, sv)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			shown, seen = fresh, time.Now()
		case !errors.Is(err, context.DeadlineExceeded):
			return err
		}

		status := "every " + sv.interval.String()
		if err != nil {
			status = "no answer since " + seen.Format(time.TimeOnly)
		}
		if err := draw(a.stdout, fmt.Sprintf("%s  %s", time.Now().Format(time.TimeOnly), status), shown); err != nil {
			return err
		}
		if pause(ctx, sv.interval) != nil {
			return nil
		}
	}
}

// draw replaces what a terminal shows by a title and as many lines, and of each as much, as it has
// room for.
func draw(w io.Writer, title string, text []byte) error {
	width, height := 80, 24
	if f, ok := w.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 && rows > 0 {
			width, height = columns, rows
		}
	}

	lines := append([]string{title, ""}, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)
	if more := len(lines) - height; more > 0 {
		lines = append(lines[:height-1], fmt.Sprintf("… %d lines more", more+1))
	}

	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width-1]) + "…"
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + clearLine)
	}

	b.WriteString(clearRest)
	_, err := io.WriteString(w, b.String())
	return err
}

// pause waits for d, or returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
