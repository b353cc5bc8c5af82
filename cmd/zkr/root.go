package main

import (
	"cmp"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// newRootCommand returns zkr with all commands. Each command has its own file.
func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "zkr",
		Short:         "ZooKeeper recipes on the command line",
		Long:          help("zkr"),
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.began = true
			a.noWait = a.wait == 0 && cmd.Flags().Changed("wait")
			return a.check()
		},
	}
	a.addFlags(root.PersistentFlags())

	root.AddCommand(
		newBarrierCommand(a), newBreakCommand(a), newDoctorCommand(a), newElectCommand(a), newExporterCommand(a),
		verbs("group", "Join a group, and see who is in it", newGroupJoinCommand(a), newGroupMembersCommand(a)),
		newHoldCommand(a), newLeaderCommand(a), newLockCommand(a), newOnceCommand(a),
		newPsCommand(a), newQueueCommand(a), newRevokeCommand(a), newSemaphoreCommand(a), newServerCommand(a),
		newUICommand(a), newValueCommand(a), newWhyCommand(a),
	)
	complete(root, root.Name())
	root.AddCommand(a.newManCommand(root))
	return root
}

// newManCommand returns a command that prints the manual page: the help of all commands.
func (a *app) newManCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man", Short: "Print the manual page: zkr man | man -l -", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// In roff, a line that begins with a dot or an apostrophe is a request.
			roff := strings.NewReplacer("\\", "\\e", "-", "\\-", "\n.", "\n\\&.", "\n'", "\n\\&'")
			page := ".TH ZKR 1\n.SH NAME\nzkr \\- " + root.Short + "\n"
			var add func(cmd *cobra.Command)
			add = func(cmd *cobra.Command) {
				text := roff.Replace("\n" + cmp.Or(cmd.Long, cmd.Short) + "\n\n" + cmd.UsageString())
				page += ".SH " + strings.ToUpper(cmd.CommandPath()) + "\n.nf" + text + ".fi\n"
				for _, sub := range cmd.Commands() {
					add(sub)
				}
			}
			add(root)
			_, err := io.WriteString(a.stdout, page)
			return err
		},
	}
}

// version returns the module version of this binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}
