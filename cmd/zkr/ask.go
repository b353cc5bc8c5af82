package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// confirm asks the user on stderr, and returns nil for yes. It does not ask if yes (from --yes) is
// true. Without a terminal nobody could answer, so it refuses.
func (a *app) confirm(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !isTerminal(a.stdin):
		return usagef("standard input is not a terminal, so it cannot be asked: %s; give --yes to do it", question)
	}

	// Write to stderr itself: notes can be dropped, but a question must not be.
	fmt.Fprintf(a.stderr, "%s [y/N] ", harmless(question))
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	if err != nil || answer != "y" && answer != "yes" {
		return errors.New("not done: the answer was not yes")
	}
	return nil
}

// readInput reads standard input up to one byte more than data can have, so that too much data is
// noticed.
func (a *app) readInput() ([]byte, error) {
	if isClosed(a.stdin) {
		return nil, usagef("standard input is closed: give DATA, or </dev/null for none")
	}
	all, err := io.ReadAll(io.LimitReader(a.stdin, recipe.MaxData+1))
	if err != nil {
		err = fmt.Errorf("read standard input: %w", err)
	}
	return all, err
}
