package main

import (
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// A table is rows of cells. Cells are aligned except the last cell of a row and cells that are too
// long: neither should widen a column.
type table [][]string

const maxCell = 60

func (t table) write(w io.Writer) error {
	var widths []int
	for _, row := range t {
		for j, cell := range row[:len(row)-1] {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			if width := utf8.RuneCountInString(cell); width <= maxCell {
				widths[j] = max(widths[j], width)
			}
		}
	}

	var b strings.Builder
	for _, row := range t {
		line, last := "", len(row)-1
		for i, cell := range row[:last] {
			line += fmt.Sprintf("%-*s  ", widths[i], cell)
		}

		// The last cells can be empty.
		fmt.Fprintln(&b, strings.TrimRight(line+row[last], " "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// list prints each value of a sequence as a row of a table, or as JSON. show returns both forms.
func list[T any](a *app, t table, all iter.Seq2[T, error], show func(T) (line any, row []string)) error {
	// JSON is printed as it comes. A table needs all rows first (for its widths).
	err := printEach(all, func(one T) error {
		line, row := show(one)
		if a.json {
			return a.printJSON(line)
		}

		t = append(t, row)
		return nil
	})

	if err != nil || a.json {
		return err
	}
	return t.write(a.stdout)
}

// printEach prints each value of a sequence.
func printEach[T any](all iter.Seq2[T, error], print func(T) error) error {
	for one, err := range all {
		if err == nil {
			err = print(one)
		}

		if err != nil {
			return err
		}
	}
	return nil
}
