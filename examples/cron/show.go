package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// show plays two nights.
func show(ctx context.Context, out io.Writer) error {
	server, err := embedded.Start(embedded.Config{TickTime: sessionTimeout / 4})
	if err != nil {
		return err
	}
	defer server.Close()
	c := &crontab{ctx: ctx, out: out, servers: server.ConnectString(), lines: make(chan line)}

	fmt.Fprintln(out, "The first night: cron starts three machines.")
	for _, name := range []string{"machine 1", "machine 2", "machine 3"} {
		if err := c.start(name, "2030-01-31", false); err != nil {
			return err
		}
	}
	if err := c.watch(func(line) error { return nil }); err != nil {
		return err
	}

	fmt.Fprintln(out, "\nThe second night: the machine that writes the report dies.")
	if err := c.start("machine 1", "2030-02-01", true); err != nil {
		return err
	}
	err = c.watch(func(l line) error {
		if l.machine != "machine 1" || !strings.HasPrefix(l.text, "writes") {
			return nil
		}
		fmt.Fprintf(out, "  machine 1 dies. The servers give it %v.\n", sessionTimeout)
		return errors.Join(c.start("machine 2", "2030-02-01", false), c.start("machine 3", "2030-02-01", false))
	})
	if err == nil {
		fmt.Fprintln(out, "\nOne report was written for each night. Fin.")
	}
	return err
}

// A crontab starts machines, and hears what they print.
type crontab struct {
	ctx     context.Context
	out     io.Writer
	servers string
	lines   chan line
	running int
}

// A line is what a machine has printed, or its end.
type line struct {
	machine, text string
	ended         bool
	err           error
}

func (c *crontab) start(name, night string, dies bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(c.ctx, self, "-machine", name, "-servers", c.servers, "-night", night,
		fmt.Sprintf("-dies=%t", dies), "-timeout", sessionTimeout.String())
	cmd.Stderr = os.Stderr
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}

	c.running++
	go func() {
		for scanner := bufio.NewScanner(printed); scanner.Scan(); {
			c.lines <- line{machine: name, text: scanner.Text()}
		}
		err := cmd.Wait()
		if dies {
			err = nil
		}
		c.lines <- line{machine: name, ended: true, err: err}
	}()
	return nil
}

// watch prints what the machines do, tells react of it, and returns once all have ended.
func (c *crontab) watch(react func(line) error) (err error) {
	for c.running > 0 {
		l := <-c.lines
		switch {
		case !l.ended:
			fmt.Fprintf(c.out, "  %s %s\n", l.machine, l.text)
			err = errors.Join(err, react(l))
		case l.err != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", l.machine, l.err))
			fallthrough
		default:
			c.running--
		}
	}
	if c.ctx.Err() != nil {
		return c.ctx.Err() // which has killed the machines
	}
	return err
}
