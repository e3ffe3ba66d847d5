# What `make install` installs, and the Debian package of it; included by the Makefile.

# Texts below PREFIX that are made by the tools.
TOOL_NAMES := $(notdir $(TOOLS))
# Debian's zsh looks for what packages bring in a folder of its own.
ZSH_FOLDER := share/zsh/$(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
TEXTS := $(TOOL_NAMES:%=share/man/man1/%.1) share/man/man7/mist.7 \
         $(TOOL_NAMES:%=share/bash-completion/completions/%) \
         $(TOOL_NAMES:%=$(ZSH_FOLDER)/_%) \
         $(TOOL_NAMES:%=share/fish/vendor_completions.d/%.fish)

# text_rule PATTERN OPTION: texts that a tool prints with that option.
define text_rule
$(BUILD)/$(1): $(BUILD)/%
	@mkdir -p $$(@D)
	$$(Q)$$< $(2) > $$@.new && mv $$@.new $$@
endef
$(eval $(call text_rule,share/man/man1/%.1,--man))
$(eval $(call text_rule,share/bash-completion/completions/%,--completion=bash))
$(eval $(call text_rule,$(ZSH_FOLDER)/_%,--completion=zsh))
$(eval $(call text_rule,share/fish/vendor_completions.d/%.fish,--completion=fish))

$(BUILD)/share/man/man7/mist.7: core/manual/mist.man core/manual/words.man Makefile
	@mkdir -p $(@D)
	$(Q)sed 's/@VERSION@/$(VERSION)/; s/@DATE@/$(DATE)/' $(filter %.man,$^) > $@

texts: $(TEXTS:%=$(BUILD)/%)
install: all texts ## install the tools, man pages and completions (PREFIX, DESTDIR)
	$(Q)for t in $(TOOL_NAMES); do install -D -m 755 $(BUILD)/$$t $(DESTDIR)$(PREFIX)/bin/$$t || exit 1; done
	$(Q)for f in $(TEXTS); do install -D -m 644 $(BUILD)/$$f $(DESTDIR)$(PREFIX)/$$f || exit 1; done
uninstall: ## remove what install put there
	$(Q)rm -f $(TOOL_NAMES:%=$(DESTDIR)$(PREFIX)/bin/%) $(TEXTS:%=$(DESTDIR)$(PREFIX)/%)

deb: deps ## a Debian package of what install installs: build/mist_VERSION_ARCHITECTURE.deb
	$(call install_packages,$(PACKAGES_DEB))
	$(Q)$(MAKE) --no-print-directory $(jobs) deb-build
deb-build:
	$(Q)rm -rf $(BUILD)/deb
	$(Q)$(MAKE) --no-print-directory install PREFIX=/usr DESTDIR=$(abspath $(BUILD)/deb)
	$(call say,DEB,$(BUILD)/mist_$(VERSION)_*.deb)
	$(Q).package/deb.sh $(BUILD)/deb $(VERSION) $(DATE) $(PACKAGES_RUN)

.PHONY: texts install uninstall deb deb-build
