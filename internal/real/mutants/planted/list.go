package planted

import (
	_ "embed"
	"strings"
)

//go:embed bugs.txt
var text string

// Bugs are planted one at a time. The file bugs.txt lists them, and says how each hurts a user.
var Bugs = parse(text)

// parse reads a list of bugs. It panics if a field of one is misspelt.
func parse(text string) (bugs []Bug) {
	for _, entry := range strings.Split(text, "\n# ")[1:] {
		var b Bug
		b.Name, entry, _ = strings.Cut(entry, "\n") // a bug without a change is found by the tests
		for line := range strings.Lines(entry) {
			key, value, field := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch {
			case line[0] == '-':
				b.Old += line[1:]
			case line[0] == '+':
				b.New += line[1:]
			case line[0] == ' ':
				b.Old, b.New = b.Old+line[1:], b.New+line[1:]
			case key == "file":
				b.File = value
			case key == "test":
				b.Test, b.Package, _ = strings.Cut(value, " of ") // without one, it's the file's package
			case key == "recipes":
				b.Recipes = strings.Fields(value)
			case field:
				panic(b.Name + ": what is " + key)
			}
		}
		bugs = append(bugs, b)
	}
	return bugs
}
