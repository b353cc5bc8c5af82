package main

import (
	"embed"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"
)

// Each command's long help is in a file.
//
//go:embed help
var helpFiles embed.FS

func help(name string) string {
	text, err := helpFiles.ReadFile("help/" + name + ".txt")
	if err != nil {
		panic(err) // can't happen: a test builds all commands
	}
	return strings.TrimSpace(string(text))
}

// complete gives a command and its subcommands their long help (from a file) and the check of their
// arguments.
func complete(cmd *cobra.Command, name string) {
	if _, err := fs.Stat(helpFiles, "help/"+name+".txt"); err == nil {
		cmd.Long = help(name)
	}

	switch {
	case strings.HasSuffix(cmd.Use, withCommand):
		cmd.Long += "\n\n" + help("running")
	case cmd.Long != "" && cmd.Flags().Lookup("raw") != nil:
		cmd.Long += "\n" + elementHelp
	}

	if !cmd.HasSubCommands() || strings.Contains(cmd.Use, " ") {
		cmd.Args = checkArgs
	}

	for _, sub := range cmd.Commands() {
		complete(sub, strings.TrimPrefix(name+"-"+sub.Name(), "zkr-"))
	}
}
