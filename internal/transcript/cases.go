package transcript

import (
	"embed"
	"regexp"
	"strings"
)

// A Case covers behaviour that clients depend on and that is easily got wrong. A case that fails
// says more than a failure of random steps.
type Case struct {
	Name  string
	Steps []Step
}

//go:embed cases-3.8.txt cases-3.9.txt
var files embed.FS

var stepLine = regexp.MustCompile(`^\d+\. (session .*)`)

// Cases returns the cases for a version. Those for 3.9 show what differs from 3.8, one thing each,
// and are among those for 3.8 too. The files have the transcripts: write a name and steps, and the
// tests of package embedded add (with -update) what clients are sent.
func Cases(version string) (list []Case) {
	text, err := files.ReadFile("cases-" + version + ".txt")
	if err != nil {
		panic(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			list = append(list, Case{Name: name})
		} else if step := stepLine.FindStringSubmatch(line); step != nil {
			c := &list[len(list)-1]
			c.Steps = append(c.Steps, parseStep(step[1]))
		}
	}
	return list
}
