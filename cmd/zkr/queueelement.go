package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

const elementHelp = `On a terminal the element is quoted if it has characters that a terminal would not show, and ends with a
newline. Elsewhere, and with --raw, its bytes are written as they are. With --json it is an object with
"data", or "data_base64" for bytes that are not text, and where it was taken "id" and "attempt".`

// An element is what is printed of an element of a queue.
type element struct {
	id      string
	attempt int
	data    []byte
}

func addRaw(cmd *cobra.Command, raw *bool) {
	cmd.Flags().BoolVar(raw, "raw", false, "write the bytes as they are to a terminal, too")
}

// printElement writes an element to stdout. Raw ones are followed by end.
func (a *app) printElement(e element, raw bool, end string) error {
	if a.json {
		return a.printJSON(struct {
			ID      string `json:"id,omitempty"`
			Attempt int    `json:"attempt,omitempty"`
			content
		}{e.id, e.attempt, contentOf(e.data)})
	}

	if raw || !isTerminal(a.stdout) {
		_, err := fmt.Fprintf(a.stdout, "%s%s", e.data, end)
		return err
	}

	_, err := fmt.Fprintln(a.stdout, printable(string(e.data)))
	return err
}
