package main

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// errDeclined is the error of a command whose question the user did not answer with yes.
var errDeclined = errors.New("not done: the answer was not yes")

// confirm asks the user on stderr whether to do something, and returns nil for yes. It does not ask
// if yes, which is --yes, is true. Without a terminal there would be no answer, so it refuses.
func (a *app) confirm(yes bool, question string) error {
	switch {
	case yes:
		return nil
	case !isTerminal(a.stdin):
		return usagef("standard input is not a terminal, so it cannot be asked: %s; give --yes to do it", question)
	}

	fmt.Fprintf(a.stderr, "%s [y/N] ", harmless(question))
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	if err != nil || answer != "y" && answer != "yes" {
		return errDeclined
	}
	return nil
}
