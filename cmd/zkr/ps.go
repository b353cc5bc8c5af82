package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// surveying has the flags of ps.
type surveying struct {
	paths      []string
	tree       bool
	interval   time.Duration
	contenders int
	nodes      int
	alive      bool

	stuck         time.Duration
	session, host string
}

// filter returns the places and contenders that the flags select.
func (sv surveying) filter(places []*survey.Place) (found []*survey.Place) {
	if sv.stuck == 0 && sv.session == "" && sv.host == "" {
		return places
	}

	for _, root := range places {
		for p := range root.All() {
			// Match each place alone, without the places below it.
			match := *p
			match.Below, match.Unread = nil, nil
			match.Contenders = slices.DeleteFunc(slices.Clone(p.Contenders), func(c survey.Contender) bool {
				return sv.session != "" && sessionID(c.Session) != sv.session || sv.host != "" && c.Owner.Host != sv.host
			})

			stuck := slices.ContainsFunc(p.Contenders, func(c survey.Contender) bool {
				return c.State == survey.Waits && !c.Since.IsZero() && time.Since(c.Since) > sv.stuck
			})
			if len(match.Contenders) > 0 && (sv.stuck == 0 || stuck) {
				found = append(found, &match)
			}
		}
	}
	return found
}

func newPsCommand(a *app) *cobra.Command {
	var sv surveying
	cmd := a.verb("ps PATH…", "Show who holds, who waits, since when: of any recipe",
		func(ctx context.Context, c *protocol.Client, args []string) error {
			sv.paths = args
			if a.watch {
				return a.psWatch(ctx, c, sv)
			}
			defer a.waiting(func() string { return "waiting for an answer about " + strings.Join(args, ", ") })()
			shown, cut, err := a.psOnce(ctx, c, sv)
			if err == nil {
				_, err = a.stdout.Write(shown)
			}
			return cmp.Or(err, cut)
		})
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case sv.interval < 100*time.Millisecond:
			return usagef("ps: --interval %v: must be at least 100ms", sv.interval)
		case sv.contenders < 1 || sv.nodes < 1:
			return usagef("ps: --limit %d and --nodes %d: must be at least 1", sv.contenders, sv.nodes)
		}

		return nil
	}

	cmd.Flags().BoolVar(&sv.tree, "tree", false, "show a tree instead of a table")
	cmd.Flags().BoolVar(&a.watch, "watch", false, "go on, and show every change")
	cmd.Flags().DurationVar(&sv.interval, "interval", time.Second, "how often to look with --watch")
	cmd.Flags().DurationVar(&sv.stuck, "stuck", 0, "show only lines in which somebody waits for longer, with status 75 if there are any")
	cmd.Flags().BoolVar(&sv.alive, "alive", false, "ask all servers when each contender was heard last, and from which address")
	cmd.Flags().StringVar(&sv.session, "session", "", "show only the contenders of this session, in hexadecimal as ps shows it")
	cmd.Flags().StringVar(&sv.host, "host", "", "show only the contenders of this host, as their data say")
	addNodes(cmd, &sv.nodes)
	cmd.Flags().IntVar(&sv.contenders, "limit", 1000, "how many contenders of each line, or elements of each queue, to read")
	return cmd
}

func addNodes(cmd *cobra.Command, nodes *int) {
	cmd.Flags().IntVar(nodes, "nodes", 10_000, "how many nodes to list; what that leaves out is unknown, with status 74")
}

// psOnce returns the output of ps, and an error (cut) if that isn't everything.
func (a *app) psOnce(ctx context.Context, c *protocol.Client, sv surveying) (shown []byte, cut, err error) {
	var places []*survey.Place
	for _, path := range sv.paths {
		p, err := survey.Look(ctx, c, path, survey.Limits{Contenders: sv.contenders, Places: sv.nodes})
		if err != nil {
			return nil, nil, err
		}

		places = append(places, p)
	}

	// Count unread nodes before the filter hides them.
	cut = unread(places...)

	if places = sv.filter(places); len(places) == 0 && sv.stuck == 0 && !a.watch {
		a.note("nothing there is as asked for")
	}

	if sv.stuck > 0 && len(places) > 0 && cut == nil {
		cut = &exitError{status: exitBusy, err: fmt.Errorf("stuck: %s in which somebody waits for more than %v", plural(len(places), "path"), sv.stuck)}
	}

	// Only ask for the contenders that are shown.
	if sv.alive {
		if err := a.findClients(ctx, c, places...); err != nil {
			return nil, nil, err
		}
	}

	var b bytes.Buffer
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
	case len(places) > 0: // so that cron sends no mail if nothing is stuck
		err = writeTable(&b, places)
	}
	return b.Bytes(), cut, err
}

// unread returns an error if something at or below the places was not read.
func unread(places ...*survey.Place) error {
	n := 0
	for _, p := range places {
		n += p.Cut()
	}

	if n == 0 {
		return nil
	}

	return &exitError{status: exitUnknown, err: fmt.Errorf("%s not read, and what is below is unknown, too: "+
		"give more --nodes or a longer PATH, or a credential for what may not be listed", plural(n, "node"))}
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // another screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K"
	clearRest   = "\x1b[J"
)

// psWatch prints the output of ps, and prints it again after each change. On a terminal it draws a
// live screen. If no server answers, the screen keeps the last state and says how old it is.
func (a *app) psWatch(ctx context.Context, c *protocol.Client, sv surveying) error {
	live := isTerminal(a.stdout) && !a.json
	limit, stop := time.Duration(math.MaxInt64), func() {}
	if live {
		fmt.Fprint(a.stdout, enterScreen)
		defer fmt.Fprint(a.stdout, leaveScreen)
		limit = max(2*time.Second, sv.interval) // then the screen shows that there is no answer
	}

	var last []byte
	seen := time.Now()

	// Draw each look on a terminal. Print only changes elsewhere.
	for ctx.Err() == nil {
		if !live {
			stop = a.waiting(func() string { return "waiting for an answer about " + strings.Join(sv.paths, ", ") })
		}

		looking, cancel := context.WithTimeout(ctx, limit)
		shown, cut, err := a.psOnce(looking, c, sv)
		cancel()
		stop()
		status := "every " + sv.interval.String()
		switch {
		case err == nil:
			seen = time.Now()
		case live && errors.Is(err, context.DeadlineExceeded):
			shown, status = last, "no answer since "+seen.Format(time.TimeOnly)
		default:
			return err
		}

		switch {
		case live:
			err = draw(a.stdout, time.Now().Format(time.TimeOnly)+"  "+status, shown)
		case last == nil && cut != nil:
			a.complain(cut.Error())
			fallthrough
		case last == nil || a.json && !bytes.Equal(shown, last):
			_, err = a.stdout.Write(shown)
		case !bytes.Equal(shown, last):
			_, err = fmt.Fprintf(a.stdout, "\n%s", shown)
		}

		if last = shown; err != nil {
			return err
		}

		select {
		case <-time.After(sv.interval):
		case <-ctx.Done():
		}
	}
	return nil
}

// draw redraws a terminal: a title and as much of the text as fits.
func draw(w io.Writer, title string, text []byte) error {
	width, height := 80, 24
	if f, ok := w.(*os.File); ok {
		if columns, rows, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 && rows > 0 {
			width, height = columns, rows
		}
	}

	lines := append([]string{title, ""}, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")...)

	// Keep a line for the number of lines that don't fit.
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

// The JSON of ps comes from package survey (with sessions in hexadecimal and data as text).
// docs/zkr.md describes it: members can be added, but existing members keep their names and
// meanings.
type (
	jsonPlace struct {
		*survey.Place
		Contenders []jsonContender `json:"contenders,omitempty"`
		Unread     int             `json:"unread,omitempty"`
		Below      []jsonPlace     `json:"below,omitempty"`
	}

	jsonContender struct {
		survey.Contender
		Session string `json:"session,omitempty"`
		content
	}
)

func placeJSON(p *survey.Place) jsonPlace {
	j := jsonPlace{Place: p, Unread: len(p.Unread)}
	for _, c := range p.Contenders {
		contender := jsonContender{Contender: c, Session: sessionID(c.Session)}
		if len(c.Data) > 0 {
			contender.content = contentOf(c.Data)
		}

		j.Contenders = append(j.Contenders, contender)
	}
	for _, below := range p.Below {
		j.Below = append(j.Below, placeJSON(below))
	}
	return j
}
