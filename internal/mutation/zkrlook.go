package main

// The commands that look and act.
func init() {
	mutations = append(mutations, []mutation{
		{
			Name: "zkr: an element that was not written is acknowledged",
			File: "cmd/zkr/queuetake.go",
			Func: "(*app).deliver",
			Old:  "if err != nil {",
			New:  "if false {",
			Test: "TestElementThatCannotBeWrittenStays",
		},
		{
			Name: "zkr: a script answers questions that it was not to answer",
			File: "cmd/zkr/ask.go",
			Old:  "case !isTerminal(a.stdin):",
			New:  "case false:",
			Test: "TestBreakWithoutATerminalNeedsYes",
		},
		{
			Name: "zkr: any answer is yes",
			File: "cmd/zkr/ask.go",
			Old:  `if err != nil || answer != "y" && answer != "yes" {`,
			New:  "if err != nil {",
			Test: "TestBreakAsksOnATerminal",
		},
		{
			Name: "zkr: break takes the next member of a name",
			File: "cmd/zkr/break.go",
			Old:  "stat == nil || stat.Czxid != c.Token",
			New:  "stat == nil",
			Test: "TestBreakSparesTheNextMemberOfAName",
		},
		{
			Name:    "zkr: a terminal gets what it may obey",
			File:    "cmd/zkr/internal/plain/plain.go",
			Old:     "return !unicode.IsPrint(r)",
			New:     "return unicode.IsControl(r)",
			Package: "./cmd/zkr",
			Test:    "TestTextThatATerminalWouldNotShowIsQuoted",
		},
		{
			Name: "zkr: a terminal gets what it may obey, in JSON",
			File: "cmd/zkr/text.go",
			Old:  "case !plain.Unprintable(r):",
			New:  "case true:",
			Test: "FuzzTextIsHarmless",
		},
		{
			Name: "zkr: ps shows readers behind a writer as holders",
			File: "cmd/zkr/internal/survey/line.go",
			Old:  "n.isReader() && hold[i-1] && names[i-1].isReader()",
			New:  "n.isReader()",
			Test: "TestReadersHoldTogetherUpToTheFirstWriter",
		},
		{
			Name: "zkr: ps does not mark orphans",
			File: "cmd/zkr/internal/survey/line.go",
			Old:  "case !isEphemeral(n.stat):",
			New:  "case false:",
			Test: "TestOrphansAndUnknownNodesAreMarked",
		},
		{
			Name:    "zkr: doctor counts on members that are down",
			File:    "cmd/zkr/internal/doctor/ensemble.go",
			Old:     "spare := up - voters/2 - 1",
			New:     "spare := voters - voters/2 - 1",
			Package: "./cmd/zkr",
			Test:    "TestDoctorSaysHowManyMembersMayFail",
		},
	}...)
}
