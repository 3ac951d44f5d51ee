# inquest says itself what comes next: commands, options, servers, causes, ids of crashes.
function __inquest_complete
    env _INQUEST_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] _TYPER_COMPLETE_ARGS=(commandline -cp) inquest 2>/dev/null
end
complete --command inquest --no-files --arguments "(__inquest_complete get-args)" --condition "__inquest_complete is-args"
